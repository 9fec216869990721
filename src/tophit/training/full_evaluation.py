"""Everything ``tophit evaluate`` measures for one model, or two on the same images, and the files it writes."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from tophit.data.feature_files import feature_file_of
from tophit.data.manifest import ImageRow, Manifest
from tophit.embedding.rows import EmbeddedRows, embed_rows
from tophit.errors import TophitError, UsageError
from tophit.evaluation import (
    PairedDifference,
    RetrievalMetrics,
    WorstQueries,
    class_spread,
    clustering_metrics,
    paired_difference,
    worst_queries,
)
from tophit.files import replace_file, without_nan, write_json
from tophit.images.sheet import SheetCell, sheet_html
from tophit.models.embedder import Embedder
from tophit.progress import View
from tophit.recipe.sections import Protocol
from tophit.reranking import Reranking
from tophit.tables import as_html, as_text, comparison_list, metric_list, named_sets_table, spread_sentence
from tophit.training.evaluate import (
    metrics_of_vectors,
    named_set_metrics,
    search_arrays,
)
from tophit.training.lengths import Length, lengths_table, measure_lengths
from tophit.training.row_relevance import in_words, usual_metrics
from tophit.training.text_recall import TextSearch, text_search, text_sentence
from tophit.training.wanted import BY_LABELS, DRAWN_GALLERIES, Judging, check_lengths, check_metrics
from tophit.wording import counted

_WORST_SHOWN, _RESULTS_SHOWN = 4, 6  # in a notebook


@dataclass(frozen=True, repr=False)
class FullEvaluation:
    """The metrics of a model, of a second one on the same queries if given, and the data behind them.

    ``queries`` are the query rows, in the order of the values per query; ``items`` the rows that were searched.
    """

    queries: list[ImageRow]
    items: list[ImageRow]
    metrics: RetrievalMetrics
    spread: dict[str, float]
    clustering: dict[str, float]
    worst: WorstQueries
    other: RetrievalMetrics | None
    differences: dict[str, PairedDifference]
    test_sets: dict[str, dict[str, float]]  # if the manifest names test sets
    protocol: Protocol = DRAWN_GALLERIES  # how these were searched
    lengths: list[Length] = field(default_factory=list)  # prefixes of the vectors, if asked for
    text: dict[str, float] = field(default_factory=dict)  # how well words find images, with a text tower
    text_against: dict[str, float] = field(default_factory=dict)  # the same of the second model, or the untrained tower
    text_differences: dict[str, PairedDifference] = field(default_factory=dict)  # of the two, text by text
    text_rival: str = ""  # which of the two it is
    relevance: str = ""  # what counts as relevant, in words, where it is not equal labels
    rows: list[ImageRow] = field(default_factory=list)  # all that could be read
    vectors: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # of ``rows``
    calibration: list[str] = field(default_factory=list)  # what was calibrated on them, in words

    def headline(self) -> str:
        """Say how many queries of how many classes were measured."""
        queries = counted(len(self.queries), "query")
        if self.queries[0].kind == "several":
            return f"{queries} with {counted(len({name for row in self.queries for name in row.names}), 'label')}:"
        return f"{queries} of {counted(len({row.label for row in self.queries}), 'class')}:"

    def sentences(self) -> list[str]:
        """Say what counts as relevant, if not equal labels, and how far classes are spread, where images have one."""
        words = text_sentence(self.text_differences, self.text, self.text_rival)
        return [
            *([self.relevance] if self.relevance else []),
            *([words] if words else []),
            *([spread_sentence(self.spread)] if self.spread else []),
            *self.calibration,
        ]

    def tables(self) -> list[Table]:
        """Return the metrics with their intervals; with a second model, the differences; named test sets."""
        found = [metric_list({**self.metrics, **self.clustering, **self.text}, self.metrics.intervals)]
        if self.other is not None:
            found.append(comparison_list(self.metrics, self.other, self.differences))
        if self.lengths:
            found.append(lengths_table(self.lengths))
        return [*found, named_sets_table(self.test_sets, self.protocol)] if self.test_sets else found

    def __repr__(self) -> str:
        return "\n".join([self.headline(), *map(as_text, self.tables()), *self.sentences()])

    def _repr_html_(self) -> str:
        tables = "".join(map(as_html, self.tables()))
        spread = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences())
        return f"<p>{self.headline()}</p>{tables}{spread}{self._worst_html()}"

    def _worst_html(self) -> str:
        """Return the contact sheet of the worst queries; none for features, which have no pictures."""
        shown = self.worst.queries[:_WORST_SHOWN]
        if not shown or feature_file_of(self.queries) is not None:
            return ""
        rows = [
            (
                SheetCell(self.queries[each.query].path, self.queries[each.query].label),
                [
                    SheetCell(self.items[item].path, f"{self.items[item].label}\n{score:.3f}", right)
                    for item, score, right in zip(each.results, each.scores, each.correct, strict=True)
                ][:_RESULTS_SHOWN],
            )
            for each in shown
        ]
        return f"<p>The worst queries:</p>{sheet_html(rows)}"


def evaluate_fully(
    embedder: Embedder,
    part: Manifest,
    against: Embedder | None = None,
    *,
    metrics: Sequence[str] = (),
    clusters: bool = False,
    rerank: Reranking | None = None,
    protocol: Protocol = DRAWN_GALLERIES,
    dims: Sequence[int] = (),
    judging: Judging = BY_LABELS,
    untrained: Callable[[], Embedder] | None = None,
    view: View | None = None,
) -> FullEvaluation:
    """Measure an embedder on rows of a manifest, and compare it query by query with the embedder ``against``.

    ``metrics`` such as ``recall@100`` are added to the usual ones; ``clusters`` adds NMI and F1 of k-means. ``rerank``
    re-ranks the model's results; without ``against``, they are compared with the results before re-ranking.
    ``protocol`` says how test sets that the manifest names are searched (``named_set_metrics``), ``judging`` what is
    relevant where labels alone don't. ``dims`` are lengths of prefixes of the vectors to measure too. ``untrained``
    makes the model as it was before training; without ``against``, search by words is compared with it. Unreadable
    images are reported in the view and left out for both models.
    """
    check_metrics(metrics)
    check_lengths(dims, embedder.dim)
    if clusters and part.kind == "several":
        raise UsageError("Clusters can't be compared with labels of which images have several; leave --clusters out.")
    used, vectors, second = embed_by_both(embedder, part, against, view)
    names = list(dict.fromkeys([*metrics, *usual_metrics(used, judging)]))
    measured = metrics_of_vectors(vectors, used, 0.95, names, rerank, judging)
    other = None if second is None else metrics_of_vectors(second, used, 0.95, names, judging=judging)
    if rerank is not None and second is None:
        other = metrics_of_vectors(vectors, used, 0.95, names, judging=judging)
    search = search_arrays(vectors, used, judging)
    labels = [row.label for row in used]
    words, rival_words, rival = _by_words(embedder, against or untrained, used, (vectors, second), search.gallery, view)
    return FullEvaluation(
        queries=[used[i] for i in search.query],
        items=[used[i] for i in search.gallery],
        metrics=measured,
        spread=class_spread(vectors, labels) if part.kind != "several" else {},
        clustering=clustering_metrics(vectors, labels) if clusters else {},
        worst=worst_queries(measured.per_query["mAP"], **search.arguments),
        other=other,
        differences={} if other is None else metric_differences(measured, other, search.arguments["labels"]),
        test_sets=named_set_metrics(vectors, used, protocol),
        protocol=protocol,
        lengths=measure_lengths(vectors, used, measured, dims) if dims else [],
        text=words.metrics,
        text_against=rival_words.metrics,
        text_differences=words.against(rival_words),
        text_rival=rival,
        relevance=in_words(used, judging),
        rows=used,
        vectors=vectors,
    )


def _by_words(
    embedder: Embedder,
    rival: Embedder | Callable[[], Embedder] | None,
    rows: Sequence[ImageRow],
    vectors: tuple[np.ndarray, np.ndarray | None],
    gallery: np.ndarray,
    view: View | None,
) -> tuple[TextSearch, TextSearch, str]:
    """Search by words with a model, and with its rival: another model, or what makes the untrained one."""
    items, nothing = [rows[i] for i in gallery], TextSearch({}, {}, [])
    own = text_search(embedder, vectors[0][gallery], items)
    if rival is None or not own.metrics:
        return own, nothing, ""
    if isinstance(rival, Embedder):
        found = nothing if vectors[1] is None else text_search(rival, vectors[1][gallery], items)
        return own, found, "the other model"
    try:
        before = rival()
        embedded = embed_rows(before, items, (view or View()).track("Embedding with the untrained tower"))
    except TophitError as error:
        (view or View()).note(f"What search by words lost in training can't be measured: {error}")
        return own, nothing, ""
    if len(embedded.rows) != len(items):
        return own, nothing, ""
    return own, text_search(before, embedded.vectors, items), "the untrained tower"


def embed_by_both(
    embedder: Embedder, part: Manifest, against: Embedder | None = None, view: View | None = None
) -> tuple[list[ImageRow], np.ndarray, np.ndarray | None]:
    """Return the readable rows, and their vectors (rows, d) from each embedder.

    Unreadable images are reported in the view and left out for both.
    """
    view, rows = view or View(), part.rows
    first = embed_rows(embedder, rows, view.track("Embedding"))
    second = None if against is None else embed_rows(against, rows, view.track("Embedding with the other model"))
    bad = first.bad | (second.bad if second else {})
    for row, reason in sorted(bad.items()):
        view.note(f"Skipped row {part.number(row)}: {reason}")
    kept = [number for number in range(len(rows)) if number not in bad]
    used = [rows[number] for number in kept]
    return used, _vectors_of(first, kept), None if second is None else _vectors_of(second, kept)


def metric_differences(
    first: RetrievalMetrics, second: RetrievalMetrics, labels: np.ndarray
) -> dict[str, PairedDifference]:
    """Return for each metric the paired difference of two models over the same queries, with labels (queries,)."""
    if np.isnan(first["mAP"]):
        return {}
    return {name: paired_difference(first.per_query[name], second.per_query[name], labels) for name in first}


def write_evaluation(evaluation: FullEvaluation, folder: str | Path) -> None:
    """Write ``evaluation.json`` and ``per_query.parquet`` (one row per query, one column per metric) into a folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {
        "path": [str(row.path) for row in evaluation.queries],
        "label": [row.label for row in evaluation.queries],
        **evaluation.metrics.per_query,
    }
    if evaluation.other is not None:
        columns |= {f"against {name}": values for name, values in evaluation.other.per_query.items()}
    with replace_file(folder / "per_query.parquet") as temporary:
        pq.write_table(pa.table(columns), temporary)
    write_json(folder / "evaluation.json", as_json(evaluation))


def as_json(evaluation: FullEvaluation) -> dict[str, Any]:
    """Return an evaluation as plain values; NaN, such as a mean over no queries, becomes null."""
    answer: dict[str, Any] = {
        "queries": len(evaluation.queries),
        "metrics": evaluation.metrics,
        "intervals": evaluation.metrics.intervals,
        "spread": evaluation.spread,
    }
    if evaluation.calibration:
        answer["calibration"] = evaluation.calibration
    if evaluation.relevance:
        answer["relevance"] = evaluation.relevance
    if evaluation.test_sets:
        answer |= {"test_sets": evaluation.test_sets, "protocol": evaluation.protocol}
    if evaluation.lengths:
        answer["lengths"] = [each.plain() for each in evaluation.lengths]
    if evaluation.text:
        answer["text"] = evaluation.text
    if evaluation.text_against:
        answer["text_against"] = evaluation.text_against
        differences = {name: asdict(value) for name, value in evaluation.text_differences.items()}
        answer |= {"text_rival": evaluation.text_rival, "text_differences": differences}
    if evaluation.clustering:
        answer["clustering"] = evaluation.clustering
    if evaluation.other is not None:
        answer["against"] = {"metrics": evaluation.other, "intervals": evaluation.other.intervals}
        answer["differences"] = {name: asdict(value) for name, value in evaluation.differences.items()}
    answer["worst_queries"] = [_worst_as_json(evaluation, found) for found in evaluation.worst.queries]
    answer["confusions"] = [asdict(confusion) for confusion in evaluation.worst.confusions]
    return without_nan(answer)


def _worst_as_json(evaluation: FullEvaluation, found: Any) -> dict[str, Any]:
    def path_of(item: int) -> str:
        return str(evaluation.items[item].path)

    return {
        "path": str(evaluation.queries[found.query].path),
        "label": evaluation.queries[found.query].label,
        "average_precision": found.value,
        "first_right_rank": found.first_right_rank,
        "results": [
            {"path": path_of(item), "label": evaluation.items[item].label, "score": score, "right": right}
            for item, score, right in zip(found.results, found.scores, found.correct, strict=True)
        ],
        "before_first_right": [path_of(item) for item in found.before_first_right],
    }


def _vectors_of(embedded: EmbeddedRows, kept: Sequence[int]) -> np.ndarray:
    """Return the vectors of the rows with these numbers, all of which must be readable."""
    place = {number: i for i, number in enumerate(embedded.rows)}
    return embedded.vectors[[place[number] for number in kept]]
