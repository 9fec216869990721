"""``tophit report``: from a finished run to a page."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tophit import __version__
from tophit.calibrating import SEVERAL, StoredCalibration, read_calibration
from tophit.data.feature_files import feature_file_of
from tophit.data.folders import part_of
from tophit.data.manifest import Manifest
from tophit.errors import TophitError
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.figures import Drawing, has_matplotlib, import_matplotlib, write_drawings
from tophit.figures.pairs import pair_drawings
from tophit.figures.reliability import calibration_drawings
from tophit.figures.run_curves import run_drawings
from tophit.models import load
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.reporting.content import Background, drawings_part, gather, page_figures, problems_part
from tophit.reporting.label_precision import Planted
from tophit.reporting.label_problems import LabelProblem, find_measured_problems, write_label_problems
from tophit.reporting.local_centres import LocalCentre, centres_part, local_centres
from tophit.reporting.measured import Measured, measure_models
from tophit.reporting.page import write_page
from tophit.reporting.pictures import Pictures, Thumbnails
from tophit.reporting.query_pages import TopK
from tophit.reporting.request import check_request, check_writable
from tophit.reporting.sources import digest_of_sources, said_of_itself
from tophit.reporting.written import Written
from tophit.tables import set_up_sentence
from tophit.training.evaluate import named_set_metrics
from tophit.training.proxies import has_proxies
from tophit.training.result import TrainingResult, gain_sentence
from tophit.training.run import Run, advantage_of, data_of_run
from tophit.training.run_rows import digest_of_rows, has_pairs
from tophit.training.wanted import judging_of, wanted_metrics

_TRAINED = {
    "head": "the head",
    "last": "the head and the network's last stages",
    "lora": "the head and adapters of the network's layers (LoRA)",
    "all": "the whole network",
}

_ABOUT_THE_SAME = 0.01  # of the same images, measured by another machine or in another precision
_SAME = 1e-6
_OTHER_QUERIES = "The run was tested on other images or labels than these, so its values before training are left out."


def make_report(
    run: str | Path,
    against: str | None = None,
    data: str | None = None,
    out: Path | None = None,
    figures: Path | None = None,
    *,
    memory_budget: int = MEMORY_BUDGET,
    view: View | None = None,
) -> Written:
    """Write the report of a finished run, compared with another model ``against`` on the same queries if given.

    ``data`` defaults to what the run was trained on, ``out`` to ``report.html`` in the run's folder. Label problems are
    listed in a CSV file next to it. ``figures`` is a folder for each figure as PNG, SVG, PDF and CSV.
    """
    view = view or View()
    folder = Path(run)
    if figures is not None:
        import_matplotlib()  # the user asks for figures, so without matplotlib this is an error
    opened = check_request(folder, against, out, figures)
    result, recipe = TrainingResult(folder, opened.result() or {}), opened.recipe()
    path = out or folder / "report.html"
    check_writable(path)
    sources = digest_of_sources(folder, against, data)  # first: what changes meanwhile is not in the page
    manifest = data_of_run(str(folder), data)
    part = _test_part(manifest)
    names = (folder.resolve().name, None if against is None else _model_name(against, folder))
    embedders = (load(folder), None if against is None else load(against))
    first, other = measure_models(names, embedders, part, wanted_metrics(recipe), view, judging_of(recipe))
    pictures = Pictures()
    is_own = _is_the_runs_own_test(first, recipe.evaluation.metric, result)
    background = Background(
        recipe.evaluation.metric,
        (result.get("before") or {}) if is_own else {},
        result.get("before_intervals") or {},
        (_top_k(recipe), _top_k_of(against)),
        recipe.seed,
        recipe.data.levels,
    )
    content = gather(first, other, background, pictures, memory_budget=memory_budget, view=view)
    drawings = _drawings(folder, first, other, view)
    chances = read_calibration(opened.best, embedders[0].fingerprint())
    told = _chance_drawings(folder, chances, first, view)
    centres = _centres(folder, data, view)
    problems, planted = _problems(first, manifest, memory_budget, view)
    listed = path.with_name(f"{path.stem}_label_problems.csv")
    content |= {
        "notes": _notes(first, result, len(part) - len(first.rows), against, is_own),
        "drawings": drawings_part(drawings),
        "chances": None if chances is None else {"sentences": chances.sentences(), "drawings": drawings_part(told)},
        "problems": problems_part(problems, planted, listed.name, pictures),
        "centres": None if centres is None else centres_part(centres, pictures),
        "test_sets": named_set_metrics(first.vectors, first.rows, recipe.evaluation.protocol, recipe.seed),
        "protocol": recipe.evaluation.protocol,
        "paper": _paper(result) if is_own else None,
        "recipe": _recipe(recipe, result, manifest),
    }
    verdict = f"{content['headline']} {content['verdict']}"
    with Thumbnails(pictures, path.parent) as thumbnails:
        thumbnails.make(view.track("Pictures"))
        content["notes"] += _missing_pictures(thumbnails, first)
        said = said_of_itself(verdict, sources if thumbnails.folder is None else "")
        write_page(path, content, thumbnails, said)
    write_label_problems(problems, listed)
    written = (
        []
        if figures is None
        else write_drawings([*drawings, *told, *page_figures(content, pictures, centres)], figures)
    )
    return Written(path, verdict, listed, written)


def _paper(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the paper's numbers beside the run's, with a sentence about the differences of the set-up."""
    paper = result.get("paper")
    return None if paper is None else {**paper, "set_up": set_up_sentence(paper.get("differences") or {})}


def _drawings(folder: Path, first: Measured, other: Measured | None, view: View) -> list[Drawing]:
    if not has_matplotlib():
        view.note("The report has no curves: matplotlib is not installed (pip install 'tophit[report]').")
        return []
    view.note("Drawing the curves ...")
    models = [(model.name, model.search.arguments) for model in (first, other) if model is not None]
    return [*run_drawings(folder), *pair_drawings(models)]


def _chance_drawings(folder: Path, chances: StoredCalibration | None, first: Measured, view: View) -> list[Drawing]:
    if chances is None:
        several = first.rows[0].kind == "several"
        why = SEVERAL if several else f"The run is not calibrated (tophit calibrate {folder})."
        view.note(f"The report has no chances. {why}")
        return []
    made = chances.calibration
    return calibration_drawings(made.check, made.unknown) if has_matplotlib() else []


def _problems(
    first: Measured, manifest: Manifest, memory_budget: int, view: View
) -> tuple[list[LabelProblem], Planted | None]:
    view.note("Looking for label problems ...")
    others = [row for row in manifest if row.split != "test"]
    return find_measured_problems(first.vectors, first.rows, others=others, memory_budget=memory_budget)


def _centres(folder: Path, data: str | None, view: View) -> list[LocalCentre] | None:
    """Return the local centres of the classes; None for a loss without proxies."""
    if not has_proxies(folder):
        return None
    return local_centres(folder, progress=view.track("Embedding the training images"), data=data)


def _is_the_runs_own_test(first: Measured, metric: str, result: dict[str, Any]) -> bool:
    """Say whether the very rows of the run's own test were measured, and the metric has its value again.

    Runs of earlier versions did not keep which rows they were: then the value must be the same to the last digits.
    """
    difference = abs(first.metrics[metric] - result["test"].get(metric, float("nan")))
    if "test_rows" not in result:
        return difference < _SAME
    return result["test_rows"] == digest_of_rows(first.rows) and difference < _ABOUT_THE_SAME


def _test_part(manifest: Manifest) -> Manifest:
    part = part_of(manifest, "test")
    if not has_pairs(part):
        raise TophitError(
            f"{manifest.source}: no class has two images in the split 'test', so there is nothing to find."
        )
    return part


def _model_name(against: str, first: Path) -> str:
    """Return the name of the other model: its folder, with the parent folder if both names are the same."""
    path = Path(against)
    if not path.is_dir():
        return against
    path = path.resolve()
    return path.name if path.name != first.resolve().name else "/".join(path.parts[-2:])


def _top_k(recipe: Recipe) -> TopK | None:
    loss = recipe.loss
    return (loss.k, loss.margin) if loss.name == "topk-precision" else None


def _top_k_of(against: str | None) -> TopK | None:
    run = None if against is None else Run(Path(against))
    return _top_k(run.recipe()) if run is not None and run.recipe_path.is_file() else None


def _notes(first: Measured, result: TrainingResult, unread: int, against: str | None, is_own: bool) -> list[str]:
    gained = [gain_sentence(result)] if result.get("gain") and not is_own else []
    elsewhere = (*result.get("calibration", ()), *gained)
    notes = [sentence for sentence in result.sentences() if sentence not in elsewhere]
    if result.before and not is_own:
        notes.append(_OTHER_QUERIES)
    if unread:
        notes.append(f"{unread:,} test images could not be read and are left out.")
    if against is not None and (warning := advantage_of(against, first.rows)):
        notes.append(f"Warning: {warning}")
    if "optimistic" in result:
        notes.append(f"Optimistic: {result['optimistic']}.")
    if not np.array_equal(first.search.query, first.search.gallery):
        notes.append(f"{len(first.search.query):,} query images search {len(first.search.gallery):,} gallery images.")
    return notes


def _missing_pictures(thumbnails: Thumbnails, first: Measured) -> list[str]:
    missing = thumbnails.made.count(None)
    if not missing:
        return []
    if missing < len(thumbnails.made):
        return [f"{missing:,} of {len(thumbnails.made):,} pictures could not be read."]
    given = feature_file_of(first.rows) is not None
    reason = "the data are a feature file, whose names are not image files" if given else "no image could be read"
    return [f"The report has no pictures: {reason}."]


def _recipe(recipe: Recipe, result: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """Return what was trained: a few facts and the whole recipe."""
    import torch

    facts = {
        "data": recipe.data.manifest,
        "training images": f"{len(manifest.where('train')):,}",
        "backbone": f"{recipe.embedder.backbone}, {recipe.embedder.weights} weights",
        "trained": _TRAINED[recipe.embedder.trainable],
        "dimensions": str(recipe.embedder.dim),
        "loss": recipe.loss.name,
        "method": recipe.method.name,
        "batches": recipe.batches.sampler,
        "epochs": f"{recipe.schedule.epochs}, the best was {result['best_epoch']}",
        "steps": f"{result['steps']:,} in {result['seconds']:.0f} s",
        "seed": str(recipe.seed),
        "report made by": f"Tophit {__version__}, torch {torch.__version__}, NumPy {np.__version__}, Python "
        f"{platform.python_version()}",
    }
    return {"facts": facts, "yaml": recipe.to_yaml()}
