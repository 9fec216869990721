"""Chances: calibrate a model or an index, and name what pictures show, as functions."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tophit.api.arguments import view_of
from tophit.errors import TophitError, UsageError
from tophit.progress import View

if TYPE_CHECKING:
    from tophit.calibrating import StoredCalibration
    from tophit.data.manifest import Manifest
    from tophit.search.naming import Name


def calibrate(
    model: str | Path,
    data: str | Path | None = None,
    *,
    unknown: float = 0.2,
    seed: int = 0,
    progress: bool | View = False,
) -> "StoredCalibration":
    """Learn the chances of search results, as ``tophit calibrate`` does, and keep them beside the model or the index.

    Args:
        model: A run, an embedder's folder, or the folder of an index.
        data: Labelled images; classes that the model has learned are left out. Default: the run's own validation and
            test classes, or the items of the index.
        unknown: The share of queries to expect whose class is not in the gallery.
        seed: Of the galleries that are drawn.
        progress: Whether to print progress.

    Returns:
        The calibration; its ``sentences()`` say what it was learned from and how well it held on other classes.

    """
    if not 0 <= unknown < 1:
        raise UsageError(f"The share of unknown queries is from 0 to less than 1, not {unknown:g}.")
    from tophit.data.folders import check_data
    from tophit.search.versions import is_catalogue

    if data is not None:
        check_data(str(data))
    options: dict[str, Any] = {"unknown": unknown, "seed": seed}
    if is_catalogue(model):
        return _calibrate_index(Path(model), None if data is None else str(data), options, view_of(progress))
    from tophit.models.named import embedder_folder, is_backbone

    if not Path(model).exists() and not is_backbone(str(model)):
        raise UsageError(f"There is no run, embedder or index in '{model}'.")
    folder = embedder_folder(model)
    if folder is None:
        raise UsageError(f"'{model}' is no folder that could keep a calibration; name a run, an embedder or an index.")
    images = _data_for(str(model), None if data is None else str(data))
    from tophit.models import load  # this and the next import torch, which takes long
    from tophit.training.calibrate_rows import calibrate_model, unseen

    embedder = load(folder)
    made = calibrate_model(embedder, unseen(images, embedder.learned), **options, view=view_of(progress))
    made.save(folder)
    return made


def name(
    index: str | Path,
    images: Sequence[Any],
    *,
    cut_off: float = 0.5,
    where: dict[str, Any] | None = None,
) -> list["Name"]:
    """Name what images show by the labels of the nearest items of an index, as ``tophit name`` does.

    Args:
        index: The folder of an index that is calibrated.
        images: Paths, Pillow images or arrays.
        cut_off: The least chance of a name; below it the answer is unknown.
        where: Only items that meet this filter.

    Returns:
        For each image the ``label`` (None: unknown), its ``chance``, the best ``guess``, and the ``evidence``.

    """
    from tophit.images.decode import check_pictures
    from tophit.search.catalogue import open_to_search
    from tophit.search.versions import read_versions

    read_versions(index)
    if not isinstance(images, str | Path):  # which the catalogue refuses
        check_pictures(images)  # before any network is loaded
    with open_to_search(index) as catalogue:
        return catalogue.name(images, cut_off, where)


def _data_for(model: str, data: str | None) -> "Manifest":
    """Return labelled data, split as a run split them; those of a model that is not a run are all for testing."""
    from tophit.data.folders import open_data
    from tophit.training.run import recipe_of_run
    from tophit.training.run_data import data_to_test

    if data is None or recipe_of_run(model) is not None:
        return data_to_test(model, data)
    return open_data(data, test_share=1.0, partial=True)


def _calibrate_index(folder: Path, data: str | None, options: dict[str, Any], view: View) -> "StoredCalibration":
    from tophit.calibrating import SEVERAL
    from tophit.search.calibrate_items import calibrate_by, calibrate_index, learned_labels
    from tophit.search.catalogue import open_catalogue

    with open_catalogue(folder) as catalogue:
        if data is None:
            made, sentences = calibrate_index(folder, catalogue.index, **options)
            if made is None:
                if sentences[-1] == SEVERAL:
                    raise TophitError(SEVERAL)
                raise UsageError(f"{sentences[-1]} Name labelled images of other classes: --data PATH.")
            return made
        from tophit.data.folders import open_data
        from tophit.training.calibrate_rows import calibrate_model, unseen

        embedder = catalogue.embedder
        part = unseen(open_data(data, test_share=1.0, partial=True), learned_labels(catalogue.index), embedder.learned)
        return calibrate_by(folder, catalogue.index, calibrate_model(embedder, part, **options, view=view))
