"""What ``import tophit`` offers: each command of the command line as a function that returns a typed result.

Nothing prints unless ``progress=True``. What is wrong raises an exception with the sentence that the command line
prints. Heavy imports wait until a function needs them.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Union, Unpack

from tophit.errors import UsageError
from tophit.progress import View

if TYPE_CHECKING:
    import numpy as np

    from tophit.advice import Advice
    from tophit.comparing.summary import Comparison
    from tophit.data.manifest import Manifest
    from tophit.models import Embedder
    from tophit.recipe import Recipe
    from tophit.reporting.make import Written
    from tophit.search.catalogue import Catalogue
    from tophit.training import TrainingResult
    from tophit.training.full_evaluation import FullEvaluation

Model = Union[str, Path, "TrainingResult", "Embedder"]
"""A run, an embedder's folder, a backbone's name, a result of ``train``, or an embedder itself."""
Chosen = str | Mapping[str, Any]
_MOST_ON_A_MAP = 5000


class RecipeFields(TypedDict, total=False):
    """The sections of a recipe, as keyword arguments; a section chosen by name may be only its name."""

    seed: int
    device: str
    precision: str
    log: Sequence[str]
    embedder: Mapping[str, Any]
    loss: Chosen
    miner: Chosen
    method: Chosen
    batches: Chosen
    memory: Mapping[str, Any]
    augment: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    paper: Mapping[str, Any]


def train(
    data: str | Path | Mapping[str, Any] | None = None,
    recipe: str | Path | Mapping[str, Any] | None = "head",
    *,
    out: str | Path,
    progress: bool | View = False,
    **fields: Unpack[RecipeFields],
) -> "TrainingResult":
    """Train an embedder on images, as ``tophit train`` does.

    Args:
        data: A folder of class folders, a manifest, a feature file, a set's name, or the recipe's section ``data``.
            None takes what the recipe names.
        recipe: A built-in recipe's name, a YAML file, or a dictionary of what a file would hold.
        out: The folder of the new run.
        progress: Whether to print progress.
        **fields: What differs from the recipe: ``loss="pnp"``, ``embedder={"trainable": "last"}``.

    Returns:
        The result, with ``metrics``, ``before``, ``gain``, ``embedder`` and ``folder``.

    """
    chosen, said = recipe_from(data, recipe, fields)
    return begin_run(chosen, out, said, view_of(progress))


def resume(folder: str | Path, *, progress: bool | View = False) -> "TrainingResult":
    """Continue a run exactly where it stopped; a finished run returns its result.

    Args:
        folder: The run's folder.
        progress: Whether to print progress.

    """
    from tophit import training

    return training.resume(folder, view_of(progress))


def evaluate(
    model: Model,
    data: str | Path | None = None,
    *,
    against: Model | None = None,
    split: str = "test",
    metrics: Sequence[str] = (),
    rerank: str | None = None,
    clusters: bool = False,
    protocol: str | None = None,
    out: str | Path | None = None,
    progress: bool | View = False,
) -> "FullEvaluation":
    """Measure how well a model finds images of the same label, as ``tophit evaluate`` does.

    Args:
        model: A run, an embedder's folder, a backbone's name, a result of ``train``, or an embedder.
        data: What to search: a folder, a manifest, a set; default: the run's own. Classes that the run learned are
            left out.
        against: Another model, compared query by query.
        split: Which rows: train, validation, test or all.
        metrics: Further metrics, such as ``recall@100``.
        rerank: ``alpha-qe`` or ``k-reciprocal``, with settings as in ``k-reciprocal:k1=10``.
        clusters: Whether to measure NMI and F1 of k-means clusters.
        protocol: How test sets that the data name are searched: ``drawn-galleries`` or ``all``.
        out: A folder for ``evaluation.json`` and ``per_query.parquet``; default: nothing is written.
        progress: Whether to print progress.

    Returns:
        The metrics with their 95% intervals over classes, the paired differences, and the worst queries.

    """
    from tophit.data.folders import part_of
    from tophit.files import check_folder

    if out is not None:
        check_folder(out, "out")
    name = model_name(model)
    from tophit.training.run import advantage_of, recipe_of_run
    from tophit.training.run_data import data_to_test

    part = part_of(data_to_test(name, None if data is None else str(data)), split)
    from dataclasses import asdict

    from tophit.reranking import parse_reranking
    from tophit.training.full_evaluation import evaluate_fully, measured_for, write_evaluation

    wanted = measured_for(recipe_of_run(name), metrics, clusters, protocol)
    step, view = None if rerank is None else parse_reranking(rerank), view_of(progress)
    other = None if against is None else embedder_of(against)
    if against is not None and (warning := advantage_of(model_name(against), part.rows)):
        view.note(f"Warning: {warning}")
    found = evaluate_fully(embedder_of(model), part, other, **asdict(wanted), rerank=step, view=view)
    if out is not None:
        write_evaluation(found, out)
    return found


def compare(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    plan: str | Path | Mapping[str, Any] | None = None,
    preset: str | None = None,
    seeds: int | None = None,
    trials: int | None = None,
    epochs: int | None = None,
    workers: int = 0,
    storage: str | None = None,
    retry: bool = False,
    train: bool = True,
    progress: bool | View = False,
) -> "Comparison":
    """Find the loss or method that suits data, as ``tophit compare`` does: the same budget for all, several seeds.

    Runs are trained in processes of their own.

    Args:
        data: A folder, a manifest, a feature file, a set; None takes what the plan names.
        out: The comparison's folder.
        plan: A plan as a YAML file or a dictionary, or the folder of a comparison to continue.
        preset: Instead of a plan: ``quick`` or ``papers``.
        seeds: Measured runs of each candidate.
        trials: Runs to search each candidate's settings; 0: no search.
        epochs: Epochs of every run.
        workers: Runs at the same time; 0: one per core.
        storage: Address of a database for Optuna; default: a file in the folder.
        retry: Whether to repeat runs that failed.
        train: Whether to train what is missing; False only computes the tables again.
        progress: Whether to print progress.

    Returns:
        One row per candidate, ranks with ties, and a recommendation in one sentence.

    """
    from tophit.files import check_folder

    if out is not None:
        check_folder(out, "out")
    from tophit.comparing.comparison import open_comparison, run_comparison

    budget = {"seeds": seeds, "trials": trials, "epochs": epochs}
    folder = None if out is None else Path(out)
    store = open_comparison(plan, preset, None if data is None else str(data), folder, budget)
    return run_comparison(store, workers, storage, view_of(progress), train=train, retry=retry)


def report(
    run: Union[str, Path, "TrainingResult"],
    *,
    against: Model | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    figures: str | Path | None = None,
    progress: bool | View = False,
) -> "Written":
    """Write one HTML page on what a run's model finds, or on a comparison, as ``tophit report`` does.

    Args:
        run: The folder of a finished run or of a comparison, or a result of ``train``.
        against: Another model for the same queries: a run, an embedder's folder or a backbone's name.
        data: The run's data, if they have moved.
        out: The page; default: ``report.html`` in the run's folder.
        figures: A folder for each figure as PNG, SVG, PDF and CSV.
        progress: Whether to print progress.

    Returns:
        The paths of what was written, and the report's first sentence.

    """
    folder, view = Path(model_name(run)), view_of(progress)
    page, drawn = (None if each is None else Path(each) for each in (out, figures))
    from tophit.comparing.comparison import compare_report, is_comparison
    from tophit.reporting.make import Written, make_report

    if is_comparison(folder):
        if against is not None or data is not None:
            raise UsageError(f"{folder} is a comparison: --against and --data are for the report of a run.")
        written, sentence = compare_report(folder, page, drawn, view)
        return Written(written, sentence, None, [] if drawn is None else sorted(drawn.iterdir()))
    other = None if against is None else model_name(against)
    return make_report(folder, other, None if data is None else str(data), page, drawn, view=view)


def plan(
    data: str | Path,
    backbone: str | None = None,
    *,
    progress: bool | View = False,
    **fields: Unpack[RecipeFields],
) -> "Advice":
    """Say what the data are, what each choice would take here, and what to choose, as ``tophit plan`` does.

    Args:
        data: What you would train on: a folder, a manifest, a feature file.
        backbone: The network; default: efficientnet-lite0.
        progress: Whether to print what is being measured.
        **fields: What differs from the recipe ``head``.

    """
    from tophit import advice

    return advice.plan(str(data), backbone, view=view_of(progress), fields=plain(fields))


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
    if out is not None:
        from tophit.embedding.vector_parts import check_parts_folder

        check_parts_folder(Path(out))
    name = model_name(model)
    part = images_for(str(data), name, split)
    from tophit.training.devices import choose_device

    view, embedder = view_of(progress), embedder_of(model).to(choose_device(device))
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
    data: str | Path, model: Model, *, out: str | Path, split: str = "all", progress: bool | View = False
) -> "Catalogue":
    """Embed images into an index in a folder, or add them to it, and open it, as ``tophit index`` does.

    Args:
        data: A folder of images in any layout, a manifest, a set.
        model: A run, an embedder's folder, a backbone's name, a result of ``train``, or an embedder.
        out: The folder of the index.
        split: Which rows: train, validation, test or all.
        progress: Whether to print progress, and which images could not be read.

    Returns:
        A catalogue: ``search(["query.jpg"], k=10)`` returns hits with ``rank``, ``score``, ``id`` and ``metadata``.

    """
    from tophit.files import check_cache, check_folder

    check_folder(out, "out")
    check_cache()
    part, view = images_for(str(data), model_name(model), split), view_of(progress)
    from tophit.search.catalogue import build_catalogue

    catalogue, bad = build_catalogue(embedder_of(model), part.rows, out, view.track("Embedding"))
    for row, reason in bad.items():
        view.note(f"Skipped row {part.number(row)}: {reason}")
    return catalogue


def recipe_from(
    data: str | Path | Mapping[str, Any] | None,
    recipe: str | Path | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> tuple["Recipe", set[str]]:
    """Return the recipe of a call, and the paths of the fields that the call set."""
    from tophit.recipe import read_recipe
    from tophit.recipe.reading import paths_in

    changes = plain(fields)
    if isinstance(data, Mapping):
        changes["data"], data = plain(data), None
    chosen = read_recipe(recipe, data=None if data is None else str(data), fields=changes)
    return chosen, paths_in(changes)


def begin_run(
    recipe: "Recipe", folder: str | Path, said: Set[str], view: View, *, describe: bool = False
) -> "TrainingResult":
    """Check what can be wrong, suit the batches to what the user ``said``, and train in a new run folder.

    ``describe`` notes what the data are and how long it will take, which takes a moment to measure.
    """
    from tophit.data.folders import check_data
    from tophit.files import check_cache, check_folder

    check_data(recipe.data.manifest)  # this and the next before torch, whose import takes long, and any features
    check_folder(folder, "out")
    check_cache()
    from tophit import training
    from tophit.training.suited_batches import suit_batches

    recipe, note = suit_batches(recipe, said)
    if note:
        view.note(note)
    if describe:
        from tophit.advice import describe_run

        for sentence in describe_run(recipe):
            view.note(sentence)
    return training.train(recipe, folder, view)


def images_for(data: str, model: str, split: str) -> "Manifest":
    """Return the images to embed; those of a folder have the split that a run gave them."""
    from tophit.data.folders import open_images, part_of

    images = open_images(data)  # before torch, whose import takes long
    from tophit.training.run_data import split_as_in_run

    return part_of(split_as_in_run(model, images) if Path(data).is_dir() else images, split)


def model_name(model: Model) -> str:
    """Return how a user names a model on the command line; for an embedder, words that are no folder."""
    if isinstance(model, str | Path):
        return str(model)
    return str(getattr(model, "folder", "the embedder"))


def embedder_of(model: Model) -> "Embedder":
    """Return the embedder of a model."""
    from tophit.models import Embedder, load

    return model if isinstance(model, Embedder) else load(model_name(model))


def view_of(progress: bool | View) -> View:
    """Return what shows progress: nothing, bars and sentences, or the view that was given."""
    if isinstance(progress, View):
        return progress
    if not progress:
        return View()
    from rich.console import Console

    from tophit.progress import TerminalView

    return TerminalView(Console())


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested fields as a recipe file could hold them: paths as text."""
    return {
        key: plain(value) if isinstance(value, Mapping) else str(value) if isinstance(value, Path) else value
        for key, value in fields.items()
    }
