"""Vectors of images, in memory, on disk, or in an index, as functions."""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tophit.api.arguments import Model, check_named, embedder_of, model_name, view_of
from tophit.progress import View
from tophit.wording import counted

if TYPE_CHECKING:
    import numpy as np

    from tophit.data.manifest import Manifest
    from tophit.search.catalogue import Catalogue

_MOST_ON_A_MAP = 5000


@dataclass(frozen=True, repr=False, eq=False)
class Embeddings:
    """Unit vectors (N, dim) of images, in the order of ``paths`` and ``labels`` (N,).

    ``unreadable`` are the reasons for images without a vector, by path. ``folder`` is where they were written, if so.
    """

    vectors: "np.ndarray"
    paths: list[str]
    labels: list[str]
    unreadable: dict[str, str]
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        classes = f" of {len(set(self.labels)):,} labels" if any(self.labels) else ""
        bad = f", {len(self.unreadable):,} images could not be read" if self.unreadable else ""
        where = "" if self.folder is None else f", in {self.folder}"
        return f"Embeddings: {len(self):,} vectors{classes}, {self.vectors.shape[1]} numbers each{bad}{where}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self._map}"

    @cached_property
    def _map(self) -> str:
        """The map, where it is drawn in a second or two: of few vectors, with matplotlib installed."""
        from tophit.figures import has_matplotlib

        if not 2 < len(self) <= _MOST_ON_A_MAP or not has_matplotlib():
            return ""
        from tophit.figures.maps import coordinates, map_drawing

        points, method = coordinates(self.vectors)
        return f'<div style="max-width: 480px">{map_drawing(points, self.labels, method).svg()}</div>'


def embed(
    data: str | Path,
    model: Model = "efficientnet-lite0",
    *,
    out: str | Path | None = None,
    split: str = "all",
    runtime: str | None = None,
    precision: str = "fp32",
    batch: int = 64,
    device: str = "auto",
    workers: int = 0,
    progress: bool | View = False,
) -> Embeddings:
    """Return the vectors of images, as ``tophit embed`` computes them.

    Args:
        data: A folder of images in any layout, a manifest, a set.
        model: A run, an embedder's folder, a backbone's name, a result of ``train``, or an embedder.
        out: A folder for the vectors as Parquet parts, so that a stopped call continues; None: only in memory.
        split: Which rows: train, validation, test or all.
        runtime: onnxruntime, openvino, torch, torch-contiguous or compiled; default: the fastest at hand (with
            ``out``).
        precision: fp32 or bf16 (with ``out``).
        batch: Images per batch (with ``out``).
        device: auto (a GPU if there is one), cpu, cuda, mps.
        workers: Processes that read images (with ``out``).
        progress: Whether to print progress.

    """
    from tophit.embedding.vector_parts import check_parts_folder
    from tophit.models.running import check_device, check_runtime

    if out is not None:
        check_parts_folder(Path(out))
    check_named(model)
    check_runtime(runtime, precision)
    check_device(device)
    name = model_name(model)
    part = images_for(str(data), name, split)
    from tophit.training.devices import choose_device

    view, embedder = view_of(progress), embedder_of(model).to(choose_device(device))
    if part.left_out:
        view.note(part.left_out)
    if out is None:
        from tophit.embedding.rows import embed_rows

        found = embed_rows(embedder, part.rows, view.track("Embedding"))
        rows = [part.rows[number] for number in found.rows]
        bad = {str(part.rows[number].path): reason for number, reason in found.bad.items()}
        return Embeddings(found.vectors, [str(row.path) for row in rows], [row.label for row in rows], bad)
    import numpy as np

    from tophit.embedding.folder import embed_to_folder
    from tophit.embedding.vector_parts import read_parts

    options: dict[str, Any] = {"runtime": runtime, "precision": precision, "batch": batch, "workers": workers}
    written = embed_to_folder(embedder, part.rows, out, model=name, **options, progress=view.track("Embedding"))
    parts = list(read_parts(out))
    vectors = np.concatenate([each.vectors for each in parts])
    paths, labels = ([value for each in parts for value in getattr(each, field)] for field in ("paths", "labels"))
    bad = {str(part.rows[number].path): reason for number, reason in written.bad.items()}
    return Embeddings(vectors, paths, labels, bad, Path(out))


def index(
    data: str | Path,
    model: Model,
    *,
    out: str | Path,
    split: str = "all",
    dim: int | None = None,
    progress: bool | View = False,
) -> "Catalogue":
    """Embed images into an index in a folder, or add them to it, and open it, as ``tophit index`` does.

    Args:
        data: A folder of images in any layout, a manifest, a set.
        model: A run, an embedder's folder, a backbone's name, a result of ``train``, or an embedder.
        out: The folder of the index.
        split: Which rows: train, validation, test or all.
        dim: Keep only the first numbers of each vector (see ``loss.prefixes``).
        progress: Whether to print progress, and which images could not be read.

    Returns:
        A catalogue: ``search(["query.jpg"], k=10)`` returns hits with ``rank``, ``score``, ``id`` and ``metadata``.

    """
    from tophit.files import check_cache, check_folder
    from tophit.models.description import check_shorter

    check_folder(out, "out")
    check_cache()
    check_named(model)
    if isinstance(model, str | Path):
        check_shorter(model, dim)
    part, view = images_for(str(data), model_name(model), split), view_of(progress)
    if part.left_out:
        view.note(part.left_out)
    from tophit.search.catalogue import build_catalogue

    embedder = embedder_of(model) if dim is None else embedder_of(model).shortened(dim)
    if sentence := without_labels(part):
        view.note(sentence)
    catalogue, bad = build_catalogue(embedder, part.rows, out, view.track("Embedding"))
    for row, reason in bad.items():
        view.note(f"Skipped row {part.number(row)}: {reason}")
    return catalogue


def without_labels(part: "Manifest") -> str:
    """Say how many images have no label, and what to do about it; nothing if all have one."""
    count = sum(not row.label for row in part)
    if not count:
        return ""
    return (
        f"{counted(count, 'image')} of {part.source} have no label: only images in class folders do, as "
        f"{part.source}/CLASS/IMAGE. They can be found, but not judged or named."
    )


def images_for(data: str, model: str, split: str) -> "Manifest":
    """Return the images to embed, with paths for labels where a run has them; what the run had is split as in the run.

    Other images of a folder have the split of their class, those of a manifest the one that it says.
    """
    from tophit.data.folders import check_split, open_images, part_of
    from tophit.training.run_data import levels_as_in_run, split_as_in_run

    check_split(split)
    images = levels_as_in_run(model, open_images(data))
    if Path(data).is_dir():
        return part_of(split_as_in_run(model, images, by_class=True), split)
    return split_as_in_run(model, part_of(images, split))
