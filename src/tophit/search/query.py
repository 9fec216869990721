"""A query: one object for Python, the command line and HTTP, and how it is answered.

Whoever asks resolves the examples of a :class:`Query` to vectors in its own way (a catalogue reads files, a server
decodes uploads in processes of their own). :func:`answer` does the rest: it combines vectors, searches and re-ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from tophit.calibrating import StoredCalibration
from tophit.cancelling import check_cancelled
from tophit.errors import TophitError, UsageError
from tophit.reranking import AlphaExpansion, KReciprocal, Reranking, expand_queries, k_reciprocal_distances
from tophit.search.backend import Hit
from tophit.search.chances import ANY_CHANCE, Hits, LeastChance, depth_of, likely_of, no_calibration
from tophit.search.groups import search_groups, with_others
from tophit.search.index import Index

AGAINST = 0.5  # how much unwanted examples weigh
TEXT_WEIGHT = 0.5  # how much words weigh beside pictures
Where = Mapping[str, Any] | None
Box = tuple[float, float, float, float]
Source = TypeVar("Source")


@dataclass(frozen=True)
class ItemId:
    """An item of the index as an example."""

    id: str


@dataclass(frozen=True)
class Wording:
    """The asker's words for the parts of a query, for error messages."""

    prefix: str = ""
    sources: str = "images or ids"
    croppable: str = "one image"


@dataclass(frozen=True)
class Query(Generic[Source]):
    """What to search by, and how.

    Each of ``examples`` is searched for on its own. ``together`` makes one query of all of them; so do ``like`` (more
    like these) and ``unlike`` (less like those). ``box`` crops the only example. ``group_by`` names a column that
    groups items: a result is the best item of a group. At most ``deepest`` results are looked at to find k groups.
    ``text`` searches by words, alone or mixed with every query that examples make: ``text_weight`` from 0 to 1.
    ``least`` cuts the list by chances, where the index is calibrated.
    """

    examples: Sequence[Source] = ()
    like: Sequence[Source] = ()
    unlike: Sequence[Source] = ()
    box: Box | None = None
    together: bool = False
    k: int = 10
    where: Where = None
    rerank: Sequence[Reranking] = ()
    against: float = AGAINST
    group_by: str | None = None
    deepest: int | None = None
    text: str | None = None
    text_weight: float = TEXT_WEIGHT
    least: LeastChance = ANY_CHANCE

    @property
    def is_combined(self) -> bool:
        """Whether all examples form one query."""
        return self.together or bool(self.like or self.unlike)

    @property
    def fields(self) -> list[str]:
        """The fields of items that it names."""
        return [*(self.where or ()), *([self.group_by] if self.group_by else ())]

    def check(self, wording: Wording, can_crop: Callable[[Source], bool]) -> None:
        """Refuse parts that do not go together."""
        say = wording
        if not (self.examples or self.like or self.unlike or self.text):
            raise UsageError(f"Say what to search for: {say.sources}, or {say.prefix}like.")
        if not 0 <= self.text_weight <= 1:
            raise UsageError(f"{say.prefix}text-weight is from 0 (only pictures) to 1 (only words).")
        if self.text is None and self.text_weight != TEXT_WEIGHT:
            raise UsageError(f"{say.prefix}text-weight weighs words beside images: give {say.prefix}text too.")
        if self.unlike and not (self.like or self.examples or self.text):
            raise UsageError(f"{say.prefix}unlike needs something that is wanted: {say.sources}, or {say.prefix}like.")
        if self.box is not None and (len(self.examples) != 1 or not can_crop(self.examples[0])):
            raise UsageError(f"{say.prefix}box crops a single picture; give exactly {say.croppable}.")
        self.least.check(say.prefix)
        if self.least and not self.tells_chances:
            raise UsageError(
                f"Chances are calibrated for the plain scores of single pictures: leave {say.prefix}rerank, "
                f"{say.prefix}text and combinations of examples out, or the least chance."
            )

    @property
    def tells_chances(self) -> bool:
        """Whether its scores are what a calibration explains: cosines with single pictures, not re-ranked."""
        return not (self.is_combined or self.rerank or self.text is not None)


@dataclass(frozen=True)
class Resolved:
    """An example as a vector (dim,), and its id if it is an item, which then is left out of the results."""

    vector: np.ndarray
    id: str | None = None


def answer(
    index: Index,
    query: Query[Any],
    examples: Sequence[Resolved],
    like: Sequence[Resolved] = (),
    unlike: Sequence[Resolved] = (),
    text: np.ndarray | None = None,
    calibration: StoredCalibration | None = None,
) -> list[list[Hit]]:
    """Return the results of a query whose examples are resolved: a list for each example, or one if it is combined.

    ``text`` is the vector (dim,) of the query's words. With a calibration, results of single examples have chances.
    """
    if query.least and calibration is None:
        raise no_calibration()
    wanted = [*examples, *like]
    if text is not None and not wanted:
        wanted, text = [Resolved(text)], None
    if query.is_combined:
        vectors = combined_vector(_vectors(wanted), _vectors(unlike), query.against)[None]
        leave_out = [[each.id for each in (*wanted, *unlike) if each.id is not None]]
    else:
        vectors = _vectors(wanted)
        leave_out = [[] if each.id is None else [each.id] for each in wanted]
    if text is not None:
        vectors = mixed_vectors(vectors, text, query.text_weight)
    if calibration is not None and query.tells_chances:
        return _told(index, query, vectors, leave_out, calibration)
    return search_vectors(index, vectors, query.k, query.where, query.rerank, leave_out, query.group_by, query.deepest)


def _told(
    index: Index, query: Query[Any], vectors: np.ndarray, leave_out: list[list[str]], calibration: StoredCalibration
) -> list[list[Hit]]:
    """Search deep enough to tell the chances of results, and leave out those whose chances are too low."""
    depth = depth_of(index, query.k, max(map(len, leave_out), default=0))
    deep = search_vectors(index, vectors, depth, None, (), leave_out)
    shown = [hits[: query.k] for hits in deep]
    if query.group_by is not None or query.where:
        shown = search_vectors(index, vectors, query.k, query.where, (), leave_out, query.group_by, query.deepest)
    answers: list[list[Hit]] = []
    for hits, likely in zip(shown, likely_of(calibration, deep, len(index)), strict=True):
        told = likely.told(hits)
        kept: Hits = copy(hits) if isinstance(hits, Hits) else Hits()
        kept[:] = told
        if query.least:
            shown_ones = query.least.kept([hit.chance or 0.0 for hit in told])
            kept[:] = [hit for hit, one in zip(told, shown_ones, strict=True) if one]
            if not kept:
                kept.nothing = query.least.nothing(max(told, key=lambda hit: hit.chance or 0.0, default=None))
        answers.append(kept)
    return answers


def resolve_items(index: Index, ids: Sequence[str]) -> list[Resolved]:
    """Return items as examples; an id that is not in the index is an error."""
    return [Resolved(vector, name) for name, vector in zip(ids, _vectors_of_items(index, ids, UsageError), strict=True)]


def search_vectors(
    index: Index,
    queries: np.ndarray,
    k: int = 10,
    where: Where = None,
    rerank: Sequence[Reranking] = (),
    leave_out: Sequence[Sequence[str]] | None = None,
    group_by: str | None = None,
    deepest: int | None = None,
) -> list[list[Hit]]:
    """Return up to k items for each query vector (Q, dim), best first, after the re-ranking steps in their order.

    With ``group_by``, up to k groups (see :mod:`tophit.search.groups`).

    ``leave_out`` names items that a query must not find, such as itself. A score is the cosine with the query, or with
    the expanded query; after k-reciprocal re-ranking it is 1 minus that distance.
    """
    queries = np.atleast_2d(np.asarray(queries, np.float32))
    without = [set(each) for each in leave_out] if leave_out is not None else [set() for _ in queries]
    for step in rerank:
        if isinstance(step, AlphaExpansion):
            queries = _expanded(index, queries, step, where, without)
    reordering = [step for step in rerank if isinstance(step, KReciprocal)]

    def ranked(numbers: Sequence[int], depth: int) -> list[list[Hit]]:
        some, left_out = queries[list(numbers)], [without[number] for number in numbers]
        if not reordering:
            return _search(index, some, depth, where, left_out)
        step = reordering[-1]
        candidates = _search(index, some, max(depth, step.candidates), where, left_out)
        return [_reordered(index, query, hits, step)[:depth] for query, hits in zip(some, candidates, strict=True)]

    if group_by is None:
        return ranked(range(len(queries)), k)
    most = index.most_results - max(map(len, without), default=0)
    deepest = max(k, min(deepest or most, most))
    groups = search_groups(ranked, len(queries), k, group_by, deepest)
    return [
        with_others(index, query, hits, group_by, where, names, deepest)
        for query, hits, names in zip(queries, groups, without, strict=True)
    ]


def combined_vector(wanted: np.ndarray, unwanted: np.ndarray | None = None, against: float = AGAINST) -> np.ndarray:
    """Return one unit vector (dim,) from examples: more like these (P, dim), less like those (N, dim).

    Rocchio's formula over unit vectors: mean(wanted) - against * mean(unwanted), scaled to unit length.
    """
    if not len(wanted):
        raise UsageError("A search by examples needs at least one that is wanted.")
    query = _unit(wanted).mean(axis=0)
    if unwanted is not None and len(unwanted):
        query = query - against * _unit(unwanted).mean(axis=0)
    length = np.linalg.norm(query)
    if length < 1e-6:
        raise UsageError("The examples cancel each other out: the wanted and the unwanted ones are the same.")
    return (query / length).astype(np.float32)


def mixed_vectors(pictures: np.ndarray, text: np.ndarray, weight: float = TEXT_WEIGHT) -> np.ndarray:
    """Return unit vectors (Q, dim) between those of pictures (Q, dim) and that of words (dim,).

    (1 - weight) * picture + weight * text, each of unit length, scaled to unit length.
    """
    mixed = (1 - weight) * _unit(pictures) + weight * _unit(text[None])
    if np.linalg.norm(mixed, axis=1).min() < 1e-6:
        raise UsageError("The words and the picture cancel each other out; change the weight of the words.")
    return _unit(mixed).astype(np.float32)


def _search(index: Index, queries: np.ndarray, k: int, where: Where, without: Sequence[set[str]]) -> list[list[Hit]]:
    """Search for a few more where some are left out, and rank the rest again."""
    more = max(map(len, without), default=0)
    depth = max(k, min(k + more, index.most_results))
    answers: list[list[Hit]] = []
    for hits, names in zip(index.search(queries, depth, where), without, strict=True):
        kept = [hit for hit in hits if hit.id not in names][:k]
        answers.append([hit if hit.rank == rank else replace(hit, rank=rank) for rank, hit in enumerate(kept, 1)])
    return answers


def _expanded(
    index: Index, queries: np.ndarray, step: AlphaExpansion, where: Where, without: Sequence[set[str]]
) -> np.ndarray:
    nearest = np.zeros((len(queries), step.neighbours, index.dim), np.float32)
    for row, hits in enumerate(_search(index, queries, step.neighbours, where, without)):
        check_cancelled()
        if hits:
            nearest[row, : len(hits)] = _vectors_of_items(index, [hit.id for hit in hits])
    return expand_queries(_unit(queries), nearest, step.alpha)


def _reordered(index: Index, query: np.ndarray, hits: list[Hit], step: KReciprocal) -> list[Hit]:
    check_cancelled()
    if not hits:
        return []
    vectors = _vectors_of_items(index, [hit.id for hit in hits])
    distances = k_reciprocal_distances(_unit(query[None]), vectors[None], step)[0]
    order = np.argsort(distances, kind="stable")
    return [replace(hits[i], rank=rank, score=float(1 - distances[i])) for rank, i in enumerate(order, 1)]


def _vectors_of_items(index: Index, ids: Sequence[str], kind: type[TophitError] = TophitError) -> np.ndarray:
    """Return the vectors (n, dim) of items; an id that is not in the index is an error of a kind."""
    found = index.get(list(ids))
    missing = [name for name, item in zip(ids, found, strict=True) if item is None]
    if missing:
        raise kind(f"The index has no item '{missing[0]}'.")
    return np.stack([item.vector for item in found if item is not None])


def _vectors(examples: Sequence[Resolved]) -> np.ndarray:
    return np.stack([each.vector for each in examples]) if examples else np.empty((0, 0), np.float32)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
