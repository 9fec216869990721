"""Plan, train, evaluate, compare and report, as functions."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, Unpack

from tophit.api.arguments import Model, RecipeFields, check_named, embedder_of, model_name, plain, recipe_from, view_of
from tophit.errors import UsageError
from tophit.progress import View

if TYPE_CHECKING:
    from tophit.advice import Advice
    from tophit.comparing.summary import Comparison
    from tophit.recipe import Recipe
    from tophit.reporting.written import Written
    from tophit.training import TrainingResult
    from tophit.training.full_evaluation import FullEvaluation


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
    dims: Sequence[int] = (),
    judgements: str | Path | None = None,
    jaccard: float | None = None,
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
        dims: Lengths of prefixes of the vectors to measure too: what a shorter vector costs.
        judgements: A TREC qrels file that says what is relevant, and how much, instead of equal labels.
        jaccard: For images with several labels: the least share of common labels that makes a result right; default:
            the run's, or any common label.
        out: A folder for ``evaluation.json`` and ``per_query.parquet``; default: nothing is written.
        progress: Whether to print progress.

    Returns:
        The metrics with their 95% intervals over classes, the paired differences, and the worst queries.

    """
    from dataclasses import asdict

    from tophit.data.folders import check_split, part_of
    from tophit.files import check_folder
    from tophit.models.description import vector_length
    from tophit.reranking import parse_reranking
    from tophit.training.run import advantage_of, recipe_of_run
    from tophit.training.run_data import data_to_test
    from tophit.training.wanted import check_lengths, judging_for, measured_for

    if out is not None:
        check_folder(out, "out")
    check_named(model, against)
    check_split(split)
    name, step = model_name(model), None if rerank is None else parse_reranking(rerank)
    recipe = recipe_of_run(name)
    wanted = measured_for(recipe, metrics, clusters, protocol)
    if isinstance(model, str | Path) and (length := vector_length(model)) is not None:
        check_lengths(dims, length)
    part = part_of(data_to_test(name, None if data is None else str(data)), split)
    judging = judging_for(recipe, part, judgements, jaccard)
    from tophit.training.building import untrained_tower  # this and the next import torch, which takes long
    from tophit.training.calibrate_rows import calibrate_if_missing
    from tophit.training.full_evaluation import evaluate_fully, write_evaluation

    view = view_of(progress)
    if part.left_out:
        view.note(part.left_out)
    other = None if against is None else embedder_of(against)
    if against is not None and (warning := advantage_of(model_name(against), part.rows)):
        view.note(f"Warning: {warning}")
    embedder = embedder_of(model)
    untrained = untrained_tower(recipe, embedder)
    options = {"rerank": step, "judging": judging, "dims": dims, "untrained": untrained, "view": view}
    found = evaluate_fully(embedder, part, other, **asdict(wanted), **options)
    if split in ("test", "validation") and judgements is None:
        found.calibration.extend(calibrate_if_missing(embedder, found.vectors, found.rows, view))
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
        preset: Instead of a plan: ``quick``, ``objectives`` or ``papers``.
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
    from tophit.comparing.opening import open_comparison

    budget = {"seeds": seeds, "trials": trials, "epochs": epochs}
    folder = None if out is None else Path(out)
    store = open_comparison(plan, preset, None if data is None else str(data), folder, budget)
    from tophit.comparing.comparison import run_comparison

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
    from tophit.comparing.store import is_comparison
    from tophit.reporting.written import Written

    if is_comparison(folder):
        from tophit.comparing.comparison import compare_report

        if against is not None or data is not None:
            raise UsageError(f"{folder} is a comparison: --against and --data are for the report of a run.")
        written, sentence = compare_report(folder, page, drawn, view)
        return Written(written, sentence, None, [] if drawn is None else sorted(drawn.iterdir()))
    from tophit.reporting.request import check_request, check_writable
    from tophit.training.run import data_of_run

    other = None if against is None else model_name(against)
    place = None if data is None else str(data)
    check_request(folder, other, page, drawn)  # before torch
    from tophit.reporting.sources import unchanged

    target = page or folder / "report.html"
    made = None if drawn is not None else unchanged(target, folder, other, place)
    if made is not None:
        return made
    data_of_run(str(folder), place)  # this and the next before torch too
    check_writable(target)
    from tophit.reporting.make import make_report

    return make_report(folder, other, place, page, drawn, view=view)


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
    from tophit.data.folders import check_data

    check_data(str(data))  # before torch, whose import takes long
    from tophit import advice

    return advice.plan(str(data), backbone, view=view_of(progress), fields=plain(fields))


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
    from tophit.training.run import Run

    Run(Path(folder)).check_new()  # before the plan, which takes a moment
    from tophit.training.suited_batches import suit_batches

    recipe, note = suit_batches(recipe, said)
    if note:
        view.note(note)
    if describe:
        from tophit.advice import describe_run

        for sentence in describe_run(recipe):
            view.note(sentence)
    return training.train(recipe, folder, view)
