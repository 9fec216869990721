"""What is relevant to which row: by the kind of the rows' labels, or by judgements."""

from collections.abc import Sequence

from tophit.data.judgements import names_of_images
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError
from tophit.evaluation import Relevance, parse_metric
from tophit.training.wanted import Judging

_GRADED_AT = 10  # results that the usual graded nDCG looks at


def usual_metrics(rows: Sequence[ImageRow], judging: Judging) -> list[str]:
    """Return the metrics that are measured besides those of equal labels: of a hierarchy's levels, or of grades."""
    if judging.judgements is not None:
        return [f"graded-ndcg@{_GRADED_AT}", f"graded-ndcg-linear@{_GRADED_AT}", "H-AP"]
    if not rows or rows[0].kind != "path":
        return []
    levels = [f"level{level}-recall@1" for level in range(1, len(rows[0].names))]
    return ["H-AP", "ASI", f"graded-ndcg@{_GRADED_AT}", *levels]


def in_words(rows: Sequence[ImageRow], judging: Judging) -> str:
    """Say what counts as relevant; nothing where it is the same label."""
    if judging.judgements is not None:
        return "Relevant is what the judgements say; right is every grade above 0."
    kind = rows[0].kind
    if kind == "several" and judging.jaccard is not None:
        return f"Right are images that share at least {judging.jaccard:g} of the labels of both (Jaccard)."
    if kind == "several":
        return "Right are images that share a label with the query."
    if kind == "path":
        return f"Right are images with all {len(rows[0].names)} levels of the query; the grade is how many they share."
    return ""


def relevance_of_rows(
    queries: Sequence[ImageRow], items: Sequence[ImageRow], judging: Judging, metrics: Sequence[str] = ()
) -> Relevance | None:
    """Return the relevance (queries, items); None where equal labels say all that the metrics need."""
    if judging.judgements is not None:
        return _judged(queries, items, judging)
    kind = queries[0].kind
    names = [row.names for row in queries], [row.names for row in items]
    if kind == "several":
        return Relevance.of_sets(*names, jaccard=judging.jaccard)
    if kind == "path" and any(metric.graded or metric.level for metric in map(parse_metric, metrics)):
        return Relevance.of_paths(*names)
    return None


def _judged(queries: Sequence[ImageRow], items: Sequence[ImageRow], judging: Judging) -> Relevance:
    """Return what the judgements say, without those of images that could not be read."""
    names = [names_of_images(rows, judging.source) for rows in (queries, items)]
    known = [set(each) for each in names]
    held = [each for each in judging.judgements or () if each.query in known[0] and each.item in known[1]]
    if not any(grade > 0 for _, _, grade in held):
        raise TophitError("No judgement says that a gallery image is relevant to a query image of these data.")
    return Relevance.of_judgements(held, *names)
