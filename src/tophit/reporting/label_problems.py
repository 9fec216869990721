"""Label problems: duplicates with different labels or in several splits, and images that are inside another class.

Four kinds are found, the most certain first:

- ``exact duplicate, different labels``: two files with the same content (SHA-256) and box but different labels; also a
  leak if they are in different splits.
- ``exact duplicate, different splits``: the same with equal labels in different splits: a test image was trained on.
- ``near-duplicate, different labels``: two images with a cosine similarity of at least ``near``.
- ``nearer to another class``: it is inside another class (see ``_nearer_to_another_class``).

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

EXACT_LABELS = "exact duplicate, different labels"
EXACT_SPLITS = "exact duplicate, different splits"
NEAR_LABELS = "near-duplicate, different labels"
NEARER = "nearer to another class"
KINDS = (EXACT_LABELS, EXACT_SPLITS, NEAR_LABELS, NEARER)
COLUMNS = (
    *("kind", "image", "label", "split", "other image", "other label", "other split"),
    *("score", "reason", "what to do"),
)
_NEIGHBOURS = 10  # of each image that are considered
_COUNTED = 2  # nearest images of a class that define how near the class is
_BLOCK = 2048  # images judged at a time
_MOST = 10_000  # problems of a kind found by vectors; a collapsed embedder would report millions
_RULE = "test images must not be trained on"
_BYTES = 2**20  # of a file read at a time


@dataclass(frozen=True)
class Neighbours:
    """The k nearest other images of each of N images, best first: row numbers (N, k) and cosine similarities (N, k)."""

    rows: np.ndarray
    similarity: np.ndarray


@dataclass(frozen=True)
class LabelProblem:
    """An image whose label or split is doubtful, and the other image that shows it.

    ``score`` orders the problems of a kind, the most certain first: 1 for exact duplicates, the cosine similarity of
    near-duplicates, and for ``nearer to another class`` how much higher the mean similarity to that class is.
    """

    kind: str
    image: ImageRow
    other: ImageRow
    score: float
    reason: str
    advice: str


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
    At most 10,000 near-duplicates and 10,000 images of another class are returned.
    """
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise UsageError(f"Vectors must have the shape ({len(rows)}, d), one per row; they have {vectors.shape}.")
    if not 0 < near <= 1:
        raise UsageError(f"near must be a cosine similarity above 0 and at most 1, not {near}.")
    exact = _exact_duplicates([*rows, *others])
    if len(rows) < 2:
        return exact
    names = {label: number for number, label in enumerate(dict.fromkeys(row.label for row in rows))}
    classes = np.asarray([names[row.label] for row in rows])
    count = min(_NEIGHBOURS, len(rows) - 1)
    neighbours = Neighbours(*first_items(search_task(vectors, classes), count, memory_budget))
    known = {frozenset((id(problem.image), id(problem.other))) for problem in exact}
    pairs = [
        problem
        for problem in _near_duplicates(neighbours, classes, rows, near)
        if frozenset((id(problem.image), id(problem.other))) not in known
    ]
    doubtful = {id(row) for one in exact if one.kind == EXACT_LABELS for row in (one.image, one.other)}
    own = _own_similarity(vectors, classes, _COUNTED, memory_budget)
    inside_another = _nearer_to_another_class(neighbours, own, classes)
    return [*exact, *pairs, *(_misplaced(one, rows) for one in inside_another if id(rows[one.row]) not in doubtful)]


def write_label_problems(problems: Iterable[LabelProblem], path: str | Path, root: str | Path | None = None) -> None:
    """Write problems as CSV, one per line; paths are relative to ``root`` (the manifest's folder) if given."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for one in problems:
            image, other = _shown(one.image, root), _shown(one.other, root)
            writer.writerow([one.kind, *image, *other, f"{one.score:.4f}", one.reason, one.advice])


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
    order = once[np.lexsort((second[once], first[once], -scores[once]))][:_MOST]
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


@dataclass(frozen=True)
class _Misplaced:
    """A row inside another class: its nearest row there, its similarity to that class and to its own."""

    row: int
    nearest: int
    other: float
    own: float


def _nearer_to_another_class(neighbours: Neighbours, own: np.ndarray, classes: np.ndarray) -> list[_Misplaced]:
    """Return the images that are inside another class, those that are most clearly nearer to it first.

    The nearness of an image to a class is its mean similarity to its 2 nearest images there (its own class may have
    only one other). Those of another class must be among its 10 nearest neighbours. An image is reported if

    1. another class is nearer than its own,
    2. it is at least as near to that class as a quarter of that class's own images are,
    3. three quarters of its own class's images are at least as near to their class as it is.

    The last two exclude classes that the embedder confuses as a whole, where every image is near to both.
    An image that is alone in its class is not checked.
    """
    usual = _lower_quartiles(own, classes, int(classes.max()) + 1)
    found: list[_Misplaced] = []
    for start in range(0, len(classes), _BLOCK):
        part = slice(start, start + _BLOCK)
        near, similarity = neighbours.rows[part], neighbours.similarity[part]
        labels = classes[near]
        until = np.tril(labels[:, :, None] == labels[:, None, :])  # [i, k, j]: j is of k's class and not after it
        whole = (until.sum(axis=2) == _COUNTED) & (labels != classes[part, None])
        means = np.where(whole, (until * similarity[:, None, :]).sum(axis=2) / _COUNTED, -np.inf)
        best = means.argmax(axis=1)
        every = np.arange(len(best))
        other, winner = means[every, best], labels[every, best]
        mine = own[part]
        wrong = (other > mine) & (other >= usual[winner]) & (mine <= usual[classes[part]])  # NaN compares as false
        for i in np.flatnonzero(wrong):
            nearest = near[i, np.argmax(labels[i] == winner[i])]
            found.append(_Misplaced(start + int(i), int(nearest), float(other[i]), float(mine[i])))
    return sorted(found, key=lambda one: (one.own - one.other, one.row))[:_MOST]


def _own_similarity(vectors: np.ndarray, classes: np.ndarray, count: int, memory_budget: int) -> np.ndarray:
    """Return each image's mean similarity (N,) to the ``count`` nearest others of its class (fewer if it is small).

    It is NaN for an image that is alone in its class. ``classes`` (N,) are integers from 0.
    """
    found = np.full(len(vectors), np.nan, np.float32)
    order = np.argsort(classes, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        others = min(count, len(members) - 1)
        if others == 0:
            continue
        own = vectors[members]
        step = max(1, memory_budget // (4 * own.itemsize * len(members)))
        for start in range(0, len(members), step):
            scores = own[start : start + step] @ own.T
            inside = np.arange(len(scores))
            scores[inside, start + inside] = -np.inf
            best = -np.partition(-scores, others - 1, axis=1)[:, :others]
            found[members[start : start + step]] = best.mean(axis=1)
    return found


def _lower_quartiles(values: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Return the lower quartile (count,) of each class's values without NaN; NaN for a class without values."""
    found = np.full(count, np.nan)
    order = np.argsort(classes, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        known = values[members][~np.isnan(values[members])]
        if len(known):
            found[classes[members[0]]] = np.quantile(known, 0.25)
    return found


def _misplaced(one: _Misplaced, rows: Sequence[ImageRow]) -> LabelProblem:
    image, other = rows[one.row], rows[one.nearest]
    return LabelProblem(
        NEARER,
        image,
        other,
        one.other - one.own,
        f"Mean similarity to the nearest images of '{other.label}': {one.other:.3f}, of its own class: {one.own:.3f}",
        f"Look at it: if it shows '{other.label}', change its label",
    )
