"""What a user and a recipe want measured, and how results are judged: told without torch, whose import takes long."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from tophit.data.judgements import Judgement, judgements_of
from tophit.data.manifest import Manifest
from tophit.errors import UsageError
from tophit.recipe import Recipe
from tophit.recipe.sections import CLUSTERING, SPREAD, Protocol
from tophit.registry import find_metric

DRAWN_GALLERIES: Protocol = "drawn-galleries"


@dataclass(frozen=True)
class Judging:
    """How results are judged, where the labels alone don't say it.

    ``jaccard`` is for images with several labels: a result is right only if the shared labels are at least that share
    of the labels of both. ``judgements`` replace labels; they name images as ``names_of_images`` does for ``source``.
    """

    jaccard: float | None = None
    judgements: Sequence[Judgement] | None = None
    source: str = ""


BY_LABELS = Judging()


def judging_of(recipe: Recipe | None) -> Judging:
    """Return how a recipe wants results to be judged."""
    return BY_LABELS if recipe is None else Judging(jaccard=recipe.evaluation.jaccard)


def judging_for(recipe: Recipe | None, part: Manifest, judgements: str | Path | None, jaccard: float | None) -> Judging:
    """Return how to judge a model's results on rows: as the user says, else as the recipe of the run says."""
    if jaccard is not None and (part.kind != "several" or not 0 < jaccard <= 1):
        raise UsageError("--jaccard is a share, above 0 and at most 1, for images with several labels (column labels).")
    if judgements is not None:
        if jaccard is not None:
            raise UsageError("--jaccard and --judgements each say what is relevant; give one of them.")
        return Judging(judgements=judgements_of(part, judgements), source=part.source)
    return judging_of(recipe) if jaccard is None else Judging(jaccard=jaccard)


def wanted_metrics(recipe: Recipe) -> list[str]:
    """Return the retrieval metrics on all test images that the recipe and its paper name."""
    named = [name for name in recipe.paper.measured if "/" not in name and name not in (*CLUSTERING, *SPREAD)]
    return list(dict.fromkeys([recipe.evaluation.metric, *named]))


def wanted_of_sets(recipe: Recipe) -> list[str]:
    """Return the metrics that the recipe's paper names for named test sets: recall@5 of small/recall@5."""
    return list(dict.fromkeys(name.rpartition("/")[2] for name in recipe.paper.measured if "/" in name))


def wanted_clusters(recipe: Recipe) -> str | None:
    """Return the column that clusters are measured against: the recipe's, or the label if its paper has clusters."""
    if recipe.evaluation.clusters is None and any(name in recipe.paper.measured for name in CLUSTERING):
        return "label"
    return recipe.evaluation.clusters


@dataclass(frozen=True)
class Wanted:
    """What ``evaluate_fully`` measures besides the usual."""

    metrics: list[str]
    clusters: bool
    protocol: Protocol


def measured_for(recipe: Recipe | None, metrics: Sequence[str], clusters: bool, protocol: str | None) -> Wanted:
    """Return what to measure: what the user names, and what the paper of the run's recipe, if there is one, names."""
    check_metrics(metrics)
    if protocol is None:
        chosen: Protocol = DRAWN_GALLERIES if recipe is None else recipe.evaluation.protocol
    elif protocol in get_args(Protocol):
        chosen = cast("Protocol", protocol)
    else:
        raise UsageError(f"The protocol must be {' or '.join(get_args(Protocol))}, not '{protocol}'.")
    if recipe is None or not recipe.paper.metrics:
        return Wanted(list(metrics), clusters, chosen)
    of_labels = recipe.evaluation.clusters in (None, "label") and wanted_clusters(recipe) is not None
    return Wanted(list(dict.fromkeys([*wanted_metrics(recipe), *metrics])), clusters or of_labels, chosen)


def check_metrics(names: Sequence[str]) -> None:
    """Raise if there is no metric of one of the names."""
    for name in names:
        find_metric(name)


def check_lengths(dims: Sequence[int], dim: int) -> None:
    """Raise if vectors of length ``dim`` have no prefix of one of the lengths."""
    wrong = [each for each in dims if not 1 <= each <= dim]
    if wrong:
        raise UsageError(f"--dim {wrong[0]}: the model's vectors have {dim} numbers; give 1 to {dim}.")
