"""Label problems: duplicates with different labels or in several splits, and images that lie in another class.

Four kinds are found, the surest first:

- ``exact duplicate, different labels``: two files with the same bytes (SHA-256; of equal boxes) and different labels;
  a leak too if they are in different splits.
- ``exact duplicate, different splits``: the same, with equal labels in different splits: what is tested was learned.
- ``near-duplicate, different labels``: two images with a cosine similarity of at least ``near``.
- ``nearer to another class``: it lies inside another class (see ``_nearer_to_another_class``).
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
from tophit.files import replace_file
from tophit.report.neighbours import Neighbours, nearest_neighbours, own_similarity

EXACT_LABELS = "exact duplicate, different labels"
EXACT_SPLITS = "exact duplicate, different splits"
NEAR_LABELS = "near-duplicate, different labels"
NEARER = "nearer to another class"
KINDS = (EXACT_LABELS, EXACT_SPLITS, NEAR_LABELS, NEARER)
COLUMNS = (
    *("kind", "image", "label", "split", "other image", "other label", "other split"),
    *("score", "reason", "what to do"),
)
_NEIGHBOURS = 10  # looked at for each image
_COUNTED = 2  # nearest images of a class that say how near it is
_BLOCK = 2048  # images judged at a time
_MOST = 10_000  # problems of a kind that vectors tell; a collapsed embedder would report millions
_RULE = "what is tested must not be learned"
_BYTES = 2**20  # of a file read at a time


@dataclass(frozen=True)
class LabelProblem:
    """An image whose label or split is doubtful, and the other image that makes it so.

    ``score`` orders the problems of a kind, the surest first: 1 for exact duplicates, the cosine similarity of
    near-duplicates, and for ``nearer to another class`` by how much the mean similarity to it is higher.
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
    """Return the label problems of images with unit vectors (N, d) and rows (N), kind by kind, the surest first.

    ``others`` are rows without vectors, such as those of other splits; only exact duplicates are looked for in them.
    A pair of duplicates is reported once. Both rows of an exact one with different labels are doubtful already, so
    neither is reported again as ``nearer to another class``. Beyond the inputs it takes ``memory_budget`` bytes and
    some hundred an image; of near-duplicates, and of images in another class, the 10,000 surest are returned.
    """
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or len(vectors) != len(rows):
        raise UsageError(f"Vectors must have shape ({len(rows)}, d), one for each row; they have {vectors.shape}.")
    if not 0 < near <= 1:
        raise UsageError(f"near is a cosine similarity above 0 and up to 1, not {near}.")
    exact = _exact_duplicates([*rows, *others])
    if len(rows) < 2:
        return exact
    names = {label: number for number, label in enumerate(dict.fromkeys(row.label for row in rows))}
    classes = np.asarray([names[row.label] for row in rows])
    neighbours = nearest_neighbours(vectors, _NEIGHBOURS, memory_budget)
    known = {frozenset((id(problem.image), id(problem.other))) for problem in exact}
    pairs = [
        problem
        for problem in _near_duplicates(neighbours, classes, rows, near)
        if frozenset((id(problem.image), id(problem.other))) not in known
    ]
    doubtful = {id(row) for one in exact if one.kind == EXACT_LABELS for row in (one.image, one.other)}
    lying = _nearer_to_another_class(neighbours, own_similarity(vectors, classes, _COUNTED, memory_budget), classes)
    return [*exact, *pairs, *(_misplaced(one, rows) for one in lying if id(rows[one.row]) not in doubtful)]


def write_label_problems(problems: Iterable[LabelProblem], path: str | Path, root: str | Path | None = None) -> None:
    """Write problems as CSV, one a line; paths as the rows have them, relative to ``root`` (the manifest's folder)."""
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
    """Return the rows whose file and box are those of an earlier row with another label, or in another split.

    Only files that share their size with another one are read. A row whose file is not there is left out.
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
    """Return what is wrong with rows of the same picture: each is compared with the first that differs from it."""
    found = []
    for number, row in enumerate(group):
        relabelled = [other for other in group[:number] if other.label != row.label]
        moved = next((other for other in group[:number] if other.split != row.split), None)
        if relabelled:
            other = min(relabelled, key=lambda one: one.split == row.split)  # the first in another split, if there is
            reason = f"The same file content is labelled '{other.label}' and '{row.label}'"
            advice = "Look at the picture, keep the right label, remove the other row"
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
    """Return the pairs of images with different labels that are at least so similar, the most similar first."""
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
            "Look at both: give them one label, or keep them if they truly differ",
        )
        for a, b, score in zip(first[order].tolist(), second[order].tolist(), scores[order].tolist(), strict=True)
    ]


@dataclass(frozen=True)
class _Lying:
    """A row that lies in another class: the row there nearest to it, its similarity to that class and to its own."""

    row: int
    nearest: int
    other: float
    own: float


def _nearer_to_another_class(neighbours: Neighbours, own: np.ndarray, classes: np.ndarray) -> list[_Lying]:
    """Return the images that lie in another class, by how much nearer they are to it, the surest first.

    How near an image is to a class is its mean similarity to its 2 nearest images there (its own class may have only
    one other); those of another class must be among its 10 nearest neighbours. An image is reported if

    1. another class is nearer than its own,
    2. it is as near to that class as three quarters of that class's own images are,
    3. three quarters of its own class's images are nearer to the class than it is, or as near.

    The last two keep classes that the embedder mixes up as a whole out of the list: there every image is near to both.
    An image that is alone in its class is not judged.
    """
    usual = _lower_quartiles(own, classes, int(classes.max()) + 1)
    found: list[_Lying] = []
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
            found.append(_Lying(start + int(i), int(nearest), float(other[i]), float(mine[i])))
    return sorted(found, key=lambda one: (one.own - one.other, one.row))[:_MOST]


def _lower_quartiles(values: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Return the value (count,) that three quarters of each class's values reach, NaN where all are."""
    found = np.full(count, np.nan)
    order = np.argsort(classes, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        known = values[members][~np.isnan(values[members])]
        if len(known):
            found[classes[members[0]]] = np.quantile(known, 0.25)
    return found


def _misplaced(one: _Lying, rows: Sequence[ImageRow]) -> LabelProblem:
    image, other = rows[one.row], rows[one.nearest]
    return LabelProblem(
        NEARER,
        image,
        other,
        one.other - one.own,
        f"Mean similarity to the nearest of '{other.label}' {one.other:.3f}, to those of its own class {one.own:.3f}",
        f"Look at it: if it shows '{other.label}', change its label",
    )
