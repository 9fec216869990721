"""What a report shows, as plain values for the page: chosen, measured and numbered, but not drawn."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.evaluation import PairedDifference
from tophit.evaluation.coordinates import coordinates
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.worst import nearest_items
from tophit.progress import View
from tophit.report.changes import won_and_lost
from tophit.report.choices import choose_queries, confused_pairs, worst_first
from tophit.report.evaluated import Evaluated
from tophit.report.pictures import Pictures
from tophit.report.query_pages import QueryPages, TopK
from tophit.report.verdict import metric_rows, verdict
from tophit.training.full_evaluation import metric_differences

WORST = 300  # queries that the browser of the worst holds
MOST_POINTS = 10_000  # of the map
_GALLERY = 6  # queries of each gallery
_PAIRS = 12
_EXAMPLES = 6  # images of a class beside one another
_TURNED = 25  # queries won, and lost, in the table
_MOST_LABELS = 65_535


@dataclass(frozen=True)
class Background:
    """What the run's folder adds to the two evaluations."""

    metric: str = "MAP@R"
    before: Mapping[str, float] = field(default_factory=dict)
    before_intervals: Mapping[str, Sequence[float]] = field(default_factory=dict)
    top_k: tuple[TopK | None, TopK | None] = (None, None)
    seed: int = 0


def gather(
    first: Evaluated,
    other: Evaluated | None,
    background: Background,
    pictures: Pictures,
    *,
    worst: int = WORST,
    most_points: int = MOST_POINTS,
    memory_budget: int = MEMORY_BUDGET,
    view: View | None = None,
) -> dict[str, Any]:
    """Return the parts of the page that come from the evaluations; images are numbers of ``pictures``."""
    view = view or View()
    task = first.task()
    values = first.metrics.per_query["mAP"]
    pages = QueryPages(first, other, pictures)
    chosen = choose_queries(values, task.query_classes, _GALLERY, background.seed)
    galleries = {name: pages.place(getattr(chosen, name)) for name in ("best", "worst", "random")}
    hardest = pages.place(worst_first(values)[:worst])
    differences = _differences(first, other)
    content: dict[str, Any] = {
        "models": [model.name for model in (first, other) if model is not None],
        "verdict": verdict(
            first,
            background.metric,
            background.before,
            background.before_intervals,
            other,
            differences.get(background.metric),
        ),
        "metric": background.metric,
        "counts": _counts(first, values),
        "metrics": metric_rows(first, other, differences),
        "galleries": galleries,
        "worst": hardest,
        "turned": None if other is None else _turned(first, other, pages),
        "pairs": _pairs(first, pictures, memory_budget, view),
        "top_k": background.top_k[0],
        "map": _map(first, pictures, most_points, view),
    }
    content["queries"] = pages.plain(background.top_k, memory_budget, view)
    return content


def _counts(first: Evaluated, values: np.ndarray) -> dict[str, int]:
    return {
        "queries": len(first.query),
        "skipped": int(np.isnan(values).sum()),
        "gallery": len(first.gallery),
        "images": len(first.rows),
        "classes": len(set(first.labels)),
    }


def _differences(first: Evaluated, other: Evaluated | None) -> dict[str, PairedDifference]:
    return {} if other is None else metric_differences(first.metrics, other.metrics, first.query_labels)


def _turned(first: Evaluated, other: Evaluated, pages: QueryPages) -> dict[str, Any]:
    """Return how many queries were won and lost, and those that changed most."""
    found = won_and_lost(first.metrics.per_query["mAP"], other.metrics.per_query["mAP"], first.query_labels)
    change = found.difference
    return {
        "won": len(found.won),
        "lost": len(found.lost),
        "equal": found.equal,
        "difference": None if change is None else {"mean": change.mean, "low": change.low, "high": change.high},
        "most_won": pages.place(found.won[:_TURNED]),
        "most_lost": pages.place(found.lost[:_TURNED]),
    }


def _pairs(first: Evaluated, pictures: Pictures, memory_budget: int, view: View) -> list[dict[str, Any]]:
    """Return the most confused pairs of classes with images of both, those that were confused in front."""
    task = first.task()
    view.note("Finding the classes that are taken for one another ...")
    nearest = nearest_items(task, memory_budget)
    nearest = np.where(np.isnan(first.metrics.per_query["mAP"]), -1, nearest)
    members: dict[str, list[int]] = {}
    found = confused_pairs(task, nearest, _PAIRS)
    names = {int(number): first.labels[int(row)] for number, row in zip(task.item_classes, first.gallery, strict=True)}
    names |= {int(number): first.labels[int(row)] for number, row in zip(task.query_classes, first.query, strict=True)}
    wanted = {names[number] for pair in found for number in (pair.first, pair.second)}
    for row, label in enumerate(first.labels):
        if label in wanted and len(members.setdefault(label, [])) < 4 * _EXAMPLES:
            members[label].append(row)
    answer = []
    for pair in found:
        rows: dict[str, list[int]] = {names[pair.first]: [], names[pair.second]: []}
        for query, item in pair.examples:
            for row in (int(first.query[query]), int(first.gallery[item])):
                rows[first.labels[row]].append(row)
        shown = {
            label: list(dict.fromkeys([*confused, *members[label]]))[:_EXAMPLES] for label, confused in rows.items()
        }
        answer.append(
            {
                "counts": [pair.first_for_second, pair.second_for_first],
                "classes": [
                    {"label": label, "items": [pictures.add(first.rows[row]) for row in shown[label]]}
                    for label in (names[pair.first], names[pair.second])
                ],
            }
        )
    return answer


def _map(first: Evaluated, pictures: Pictures, most: int, view: View) -> dict[str, Any]:
    """Return the map: of more than ``most`` images, as many at equal steps."""
    rows = np.arange(0, len(first.rows), max(1, -(-len(first.rows) // most)))
    view.note(f"Drawing the map of {len(rows):,} images ...")
    points, method = coordinates(first.vectors[rows])
    labels = [first.labels[row] for row in rows]
    names = [name for name, _ in Counter(labels).most_common(_MOST_LABELS)]
    numbers = {name: number for number, name in enumerate(names)}
    shown = [pictures.add(first.rows[row], large=False) for row in rows]
    return {
        "method": method,
        "of": len(first.rows),
        "names": names,
        "points": _packed(points.astype("<f4")),
        "labels": _packed(np.array([numbers.get(label, _MOST_LABELS) for label in labels], "<u2")),
        "pictures": _packed(np.array(shown, "<u4")),
    }


def describe_pictures(pictures: Pictures, made: Sequence[str | None], folder: str) -> dict[str, Any]:
    """Return what the page knows of each image: its label, its name, and its picture or None."""
    names = list(dict.fromkeys(row.label for row in pictures.rows))
    numbers = {name: number for number, name in enumerate(names)}
    return {
        "labels": names,
        "label": [numbers[row.label] for row in pictures.rows],
        "name": [image_name(row) for row in pictures.rows],
        "data": list(made),
        "folder": folder,
    }


def image_name(row: ImageRow) -> str:
    """Return what an image is called on the page: its file and the folder that it lies in."""
    return "/".join(row.path.parts[-2:])


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
