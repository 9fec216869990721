"""What a report shows, as plain values for the page and as figures."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tophit.evaluation import PairedDifference, won_and_lost
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.figures import Drawing
from tophit.figures.galleries import Ranked, gallery_drawing
from tophit.figures.maps import coordinates, map_drawing
from tophit.progress import View
from tophit.reporting.confusions import Level, confused_part, find_confusions, levels_of_rows
from tophit.reporting.label_precision import Planted
from tophit.reporting.label_problems import LabelProblem
from tophit.reporting.local_centres import LocalCentre, centres_drawing
from tophit.reporting.measured import Measured, headline, mark_words, metric_rows, verdict
from tophit.reporting.pictures import Pictures, image_name
from tophit.reporting.queries import choose_queries, worst_first
from tophit.reporting.query_pages import QueryPages, TopK
from tophit.training.full_evaluation import metric_differences

WORST = 300  # queries in the list of the worst
MOST_POINTS = 10_000  # of the map
_GALLERY = 6  # queries of each gallery
_TURNED = 25  # queries in each of the tables of those won and lost
_PROBLEMS = 12  # shown of each kind; the CSV file has all
_MOST_LABELS = 65_535
_TITLES = {"best": "Best queries", "worst": "Worst queries", "random": "Random queries"}
_RESULTS = 8  # of a query in a figure


@dataclass(frozen=True)
class Background:
    """What the folder of the run adds to the two evaluations."""

    metric: str = "MAP@R"
    before: Mapping[str, float] = field(default_factory=dict)
    before_intervals: Mapping[str, Sequence[float]] = field(default_factory=dict)
    top_k: tuple[TopK | None, TopK | None] = (None, None)
    seed: int = 0
    levels: Sequence[str] = ()
    """The names of a hierarchy's levels above the class, if the recipe has them."""


def gather(
    first: Measured,
    other: Measured | None,
    background: Background,
    pictures: Pictures,
    *,
    worst: int = WORST,
    most_points: int = MOST_POINTS,
    memory_budget: int = MEMORY_BUDGET,
    view: View | None = None,
) -> dict[str, Any]:
    """Return the parts of the page that come from the evaluations; images are their numbers in ``pictures``."""
    view = view or View()
    task = first.task()
    values = first.metrics.per_query["mAP"]
    pages = QueryPages(first, other, pictures)
    chosen = choose_queries(values, task.query_classes, _GALLERY, background.seed)
    galleries = {name: pages.place(getattr(chosen, name)) for name in _TITLES}
    hardest = pages.place(worst_first(values)[:worst])
    differences = _differences(first, other)
    levels = levels_of_rows(first.rows, background.levels)
    view.note("Finding confused classes ...")
    confusions = find_confusions(first, memory_budget)
    words = mark_words(first.rows, levels[1].title if background.levels else "parent")
    near = (confusions.marks["near"] / max(1, confusions.marks.total()), words["near"]) if "near" in words else None
    content: dict[str, Any] = {
        "models": [model.name for model in (first, other) if model is not None],
        "headline": headline(first, background.before, other, differences.get("recall@1"), near),
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
        "confused": confused_part(first, confusions, levels, pictures),
        "first_results": dict(confusions.marks) if near else None,
        "words": words,
        "top_k": background.top_k[0],
        "map": _map(first, levels, pictures, most_points, view),
    }
    content["queries"] = pages.plain(background.top_k, memory_budget, view)
    return content


def _counts(first: Measured, values: np.ndarray) -> dict[str, int]:
    return {
        "queries": len(first.search.query),
        "skipped": int(np.isnan(values).sum()),
        "gallery": len(first.search.gallery),
        "images": len(first.rows),
        "classes": len({name for row in first.rows for name in row.classes}),
    }


def _differences(first: Measured, other: Measured | None) -> dict[str, PairedDifference]:
    return {} if other is None else metric_differences(first.metrics, other.metrics, first.query_labels)


def _turned(first: Measured, other: Measured, pages: QueryPages) -> dict[str, Any]:
    """Return how many queries got better and worse, and those that changed most."""
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


def _map(first: Measured, levels: Sequence[Level], pictures: Pictures, most: int, view: View) -> dict[str, Any]:
    """Return the map; of more than ``most`` images it shows a part, at equal steps."""
    rows = np.arange(0, len(first.rows), max(1, -(-len(first.rows) // most)))
    view.note(f"Drawing the map of {len(rows):,} images ...")
    points, method = coordinates(first.vectors[rows])
    shown = [pictures.add(first.rows[row], large=False) for row in rows]
    return {
        "method": method,
        "of": len(first.rows),
        "points": _packed(points.astype("<f4")),
        "pictures": _packed(np.array(shown, "<u4")),
        "colourings": [_colouring(level, rows) for level in levels],
    }


def _colouring(level: Level, rows: np.ndarray) -> dict[str, Any]:
    """Return the name of each point at a level; of several names it has the one that most points have."""
    often = Counter(name for row in rows for name in level.names[row])
    names = [name for name, _ in often.most_common(_MOST_LABELS)]
    numbers = {name: number for number, name in enumerate(names)}
    chosen = [min(numbers.get(name, _MOST_LABELS) for name in level.names[row]) for row in rows]
    return {"title": level.title, "names": names, "labels": _packed(np.array(chosen, "<u2"))}


def drawings_part(drawings: Sequence[Drawing]) -> list[dict[str, str]]:
    """Return the drawings as SVG for the page."""
    return [{"name": one.name, "title": one.title, "caption": one.caption, "svg": one.svg()} for one in drawings]


def problems_part(
    problems: Sequence[LabelProblem], planted: Planted | None, file: str, pictures: Pictures
) -> dict[str, Any]:
    """Return the label problems by kind, each with both pictures, and what is known about their precision."""
    kinds: dict[str, list[LabelProblem]] = {}
    for one in problems:
        kinds.setdefault(one.kind, []).append(one)
    return {
        "found": len(problems),
        "file": file,
        "planted": None
        if planted is None
        else {
            "changed": planted.changed,
            "times": planted.times,
            "precision": planted.precision,
            "recall": planted.recall,
        },
        "kinds": [
            {
                "name": kind,
                "title": kind[0].upper() + kind[1:],
                "found": len(found),
                "shown": [_problem(one, pictures) for one in found[:_PROBLEMS]],
            }
            for kind, found in kinds.items()
        ],
    }


def _problem(one: LabelProblem, pictures: Pictures) -> dict[str, Any]:
    images = [
        {"picture": pictures.add(row), "label": row.label, "split": row.split, "file": image_name(row)}
        for row in (one.image, one.other)
    ]
    return {"images": images, "reason": one.reason, "advice": one.advice, "precision": one.precision}


def page_figures(
    content: Mapping[str, Any], pictures: Pictures, centres: Sequence[LocalCentre] | None
) -> list[Drawing]:
    """Return the galleries, the map and the local centres of a page as figures for a paper."""
    figures = []
    for name, title in _TITLES.items():
        queries = [content["queries"][place] for place in content["galleries"][name]]
        sides = [(one["picture"], one["sides"][0]) for one in queries]
        ranked = [Ranked(picture, side["items"], side["scores"], side["marks"]) for picture, side in sides]
        figures.append(gallery_drawing(pictures.rows, ranked, _RESULTS, f"gallery_{name}", title))
    drawn = content["map"]
    points = np.frombuffer(base64.b64decode(drawn["points"]), "<f4").reshape(-1, 2)
    shown = np.frombuffer(base64.b64decode(drawn["pictures"]), "<u4")
    rows = [pictures.rows[number] for number in shown]
    paths = [str(row.path) for row in rows]
    figures.append(map_drawing(points, [row.label for row in rows], drawn["method"], images=paths))
    return figures if centres is None else [*figures, centres_drawing(centres)]


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
