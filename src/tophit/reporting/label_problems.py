"""Label problems: duplicates with different labels or in several splits, and images that are inside another class.

Four kinds are found, the most certain first:

- ``exact duplicate, different labels``: two files with the same content (SHA-256) and box but different labels; also a
  leak if they are in different splits.
- ``exact duplicate, different splits``: the same with equal labels in different splits: a test image was trained on.
- ``near-duplicate, different labels``: two images with a cosine similarity of at least ``near``.
- ``nearer to another class``: it is inside another class (see ``misplaced.nearer_to_another_class``).

``python -m benchmarks.label_problems`` measures how many planted errors are found.
"""

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.errors import UsageError
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.nearest import first_items
from tophit.evaluation.scores import search_task
from tophit.files import replace_file
from tophit.reporting.label_precision import Planted, plant_errors
from tophit.reporting.misplaced import MOST, Misplaced, Neighbours, nearer_to_another_class

EXACT_LABELS = "exact duplicate, different labels"
EXACT_SPLITS = "exact duplicate, different splits"
NEAR_LABELS = "near-duplicate, different labels"
NEARER = "nearer to another class"
KINDS = (EXACT_LABELS, EXACT_SPLITS, NEAR_LABELS, NEARER)
COLUMNS = (
    *("kind", "image", "label", "split", "other image", "other label", "other split"),
    *("score", "precision", "reason", "what to do"),
)
_NEIGHBOURS = 10  # of each image that are considered
_RULE = "test images must not be trained on"
_BYTES = 2**20  # of a file read at a time


@dataclass(frozen=True)
class LabelProblem:
    """An image whose label or split is doubtful, and the other image that shows it.

    ``score`` orders the problems of a kind, the most certain first: 1 for exact duplicates, the cosine similarity of
    near-duplicates, and for ``nearer to another class`` that of :class:`Misplaced`. ``precision`` is the part of
    suspects at least as clear as this one that were wrong when wrong labels were planted; None if not measured.
    """

    kind: str
    image: ImageRow
    other: ImageRow
    score: float
    reason: str
    advice: str
    precision: float | None = None


def find_label_problems(
    vectors: np.ndarray,
    rows: Sequence[ImageRow],
    *,
    others: Sequence[ImageRow] = (),
    near: float = 0.98,
    memory_budget: int = MEMORY_BUDGET,
) -> list[LabelProblem]:
    """Return the label problems of images with unit vectors (N, d) and rows (N), by kind, the most certain first.

    ``others`` are rows without vectors, such as those of other splits; they are searched for exact duplicates only.
    A pair of duplicates is reported once. The rows of an exact duplicate with different labels are not reported again
    as ``nearer to another class``. Beyond the inputs it needs ``memory_budget`` bytes and some hundred bytes per image.
    At most 10,000 near-duplicates and 10,000 images of another class are returned. Images with several labels are only
    checked for duplicates; near-duplicates that share a label are none.
    """
    return _find(vectors, rows, others, near, memory_budget, None)[0]


def find_measured_problems(
    vectors: np.ndarray,
    rows: Sequence[ImageRow],
    *,
    others: Sequence[ImageRow] = (),
    near: float = 0.98,
    memory_budget: int = MEMORY_BUDGET,
    seed: int = 0,
) -> tuple[list[LabelProblem], Planted | None]:
    """Return the same, and how many errors that were planted into these labels are found; None if there are too few.

    Each image that is nearer to another class then has a ``precision``.
    """
    return _find(vectors, rows, others, near, memory_budget, seed)


def _find(
    vectors: np.ndarray,
    rows: Sequence[ImageRow],
    others: Sequence[ImageRow],
    near: float,
    memory_budget: int,
    seed: int | None,
) -> tuple[list[LabelProblem], Planted | None]:
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise UsageError(f"Vectors must have the shape ({len(rows)}, d), one per row; they have {vectors.shape}.")
    if not 0 < near <= 1:
        raise UsageError(f"near must be a cosine similarity above 0 and at most 1, not {near}.")
    exact = _exact_duplicates([*rows, *others])
    if len(rows) < 2:
        return exact, None
    names = {label: number for number, label in enumerate(dict.fromkeys(row.label for row in rows))}
    classes = np.asarray([names[row.label] for row in rows])
    count = min(_NEIGHBOURS, len(rows) - 1)
    neighbours = Neighbours(*first_items(search_task(vectors, classes), count, memory_budget))
    known = {frozenset((id(problem.image), id(problem.other))) for problem in exact}
    pairs = [
        problem
        for problem in _near_duplicates(neighbours, classes, rows, near)
        if frozenset((id(problem.image), id(problem.other))) not in known
        and not set(problem.image.classes) & set(problem.other.classes)
    ]
    doubtful = {id(row) for one in exact if one.kind == EXACT_LABELS for row in (one.image, one.other)}
    if rows[0].kind == "several":  # a class is then a label that others share: no image is inside another
        return [*exact, *pairs], None
    inside_another = nearer_to_another_class(vectors, neighbours, classes, memory_budget)
    planted = None if seed is None else plant_errors(vectors, neighbours, classes, memory_budget, seed)
    misplaced = [_misplaced(one, rows, planted) for one in inside_another if id(rows[one.row]) not in doubtful]
    return [*exact, *pairs, *misplaced], planted


def write_label_problems(problems: Iterable[LabelProblem], path: str | Path, root: str | Path | None = None) -> None:
    """Write problems as CSV, one per line; paths are relative to ``root`` (the manifest's folder) if given."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for one in problems:
            image, other = _shown(one.image, root), _shown(one.other, root)
            writer.writerow(
                [one.kind, *image, *other, f"{one.score:.4f}", _percent(one.precision), one.reason, one.advice]
            )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}%"


def _shown(row: ImageRow, root: str | Path | None) -> tuple[str, str, str]:
    path = row.path
    if root is not None and path.is_relative_to(root):
        path = path.relative_to(root)
    return str(path), row.label, row.split


def _exact_duplicates(rows: Sequence[ImageRow]) -> list[LabelProblem]:
    """Return the rows with the same file content and box as an earlier row with another label or in another split.

    Only files of equal size are read. A row whose file does not exist is left out.
    """
    by_size: dict[tuple[int, object], list[ImageRow]] = defaultdict(list)
    for row in rows:
        if row.path.is_file():
            by_size[row.path.stat().st_size, row.box].append(row)
    found: list[LabelProblem] = []
    for alike in by_size.values():
        groups: dict[str, list[ImageRow]] = defaultdict(list)
        for row in alike if len(alike) > 1 else ():
            groups[_content(row.path)].append(row)
        for group in groups.values():
            found.extend(_of_group(group))
    place = {id(row): number for number, row in enumerate(rows)}
    return sorted(found, key=lambda one: (KINDS.index(one.kind), place[id(one.image)]))


def _of_group(group: list[ImageRow]) -> list[LabelProblem]:
    """Return the problems of rows with the same picture: each is compared with the first row that differs."""
    found = []
    for number, row in enumerate(group):
        relabelled = [other for other in group[:number] if other.label != row.label]
        moved = next((other for other in group[:number] if other.split != row.split), None)
        if relabelled:
            other = min(relabelled, key=lambda one: one.split == row.split)  # prefer one in another split
            reason = f"The same file content is labelled '{other.label}' and '{row.label}'"
            advice = "Look at the picture, keep the right label and remove the other row"
            if moved is not None:
                reason += f", and it leaks: it is in {moved.split} and {row.split}"
                advice = (
                    f"Look at the picture, keep the right label, and remove it from {_less_needed(row, moved)}: {_RULE}"
                )
            found.append(LabelProblem(EXACT_LABELS, row, other, 1.0, reason, advice))
        elif moved is not None:
            reason = f"The same file content is in {moved.split} and {row.split}"
            advice = f"Remove it from {_less_needed(row, moved)}: {_RULE}"
            found.append(LabelProblem(EXACT_SPLITS, row, moved, 1.0, reason, advice))
    return found


def _less_needed(row: ImageRow, other: ImageRow) -> str:
    return next(split for split in ("train", "validation", "test") if split in (row.split, other.split))


def _content(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _near_duplicates(
    neighbours: Neighbours, classes: np.ndarray, rows: Sequence[ImageRow], near: float
) -> list[LabelProblem]:
    """Return the pairs of images with different labels and a similarity of at least ``near``, most similar first."""
    image, place = np.nonzero((neighbours.similarity >= near) & (classes[neighbours.rows] != classes[:, None]))
    other, scores = neighbours.rows[image, place], neighbours.similarity[image, place]
    first, second = np.minimum(image, other), np.maximum(image, other)
    _, once = np.unique(first * len(rows) + second, return_index=True)
    order = once[np.lexsort((second[once], first[once], -scores[once]))][:MOST]
    return [
        LabelProblem(
            NEAR_LABELS,
            rows[a],
            rows[b],
            score,
            f"Similarity {score:.3f}, but labelled '{rows[a].label}' and '{rows[b].label}'",
            "Look at both: give them the same label, or keep both labels if they really differ",
        )
        for a, b, score in zip(first[order].tolist(), second[order].tolist(), scores[order].tolist(), strict=True)
    ]


def _misplaced(one: Misplaced, rows: Sequence[ImageRow], planted: Planted | None) -> LabelProblem:
    image, other = rows[one.row], rows[one.nearest]
    return LabelProblem(
        NEARER,
        image,
        other,
        one.score,
        f"Mean similarity to the nearest images of '{other.label}': {one.other:.3f}, of its own class: {one.own:.3f}",
        f"Look at it: if it shows '{other.label}', change its label",
        None if planted is None else planted.precision_of(one.score),
    )
