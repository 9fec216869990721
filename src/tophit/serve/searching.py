"""From a request to an answer: pictures to vectors, vectors to results, and two models' results side by side."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tophit.reranking import Reranking
from tophit.search.backend import Hit
from tophit.search.query import combined_query, search_vectors
from tophit.serve.decode_pool import KEPT_SIDE
from tophit.serve.guard import stage
from tophit.serve.library import Library
from tophit.serve.problems import Problem
from tophit.serve.requests import SearchRequest
from tophit.serve.side import Side, unit_rows

Plain = dict[str, Any]


@dataclass
class _Source:
    """One thing to search by: how an answer names it, its picture if it has to go through the network, or its vector.

    ``vectors`` are by the model's fingerprint. ``ids`` are the index' names of the item, by fingerprint, if it is one.
    """

    plain: Plain
    picture: np.ndarray | None = None
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


async def search(library: Library, request: SearchRequest, files: Sequence[bytes] = ()) -> Plain:
    """Answer a search by the first model."""
    steps = request.check(library.limits, len(files))
    sides = library.sides if files else [library.first]  # a picture that is kept can be compared later
    sources = await _sources(library, request, files, sides)
    return await _answer(library, library.first, request, steps, sources)


async def compare(library: Library, request: SearchRequest, files: Sequence[bytes] = ()) -> Plain:
    """Answer a search of one query by both models, and say how the second's ranks differ from the first's."""
    if library.second is None:
        raise Problem(404, "There is nothing to compare with: the server was started without --against.")
    steps = request.check(library.limits, len(files))
    if request.vectors:
        raise Problem(422, "A vector is one model's; compare by files, uploads or ids.")
    sources = await _sources(library, request, files, library.sides)
    answers = [await _answer(library, side, request, steps, sources) for side in library.sides]
    if len(answers[0]["queries"]) != 1:
        raise Problem(422, "Two models are compared on one query at a time.")
    first, second = (answer["queries"][0]["results"] for answer in answers)
    return {
        **library.envelope(library.first),
        "query": answers[0]["queries"][0]["query"],
        "first": {"name": library.first.name, "model": library.first.model, "results": first},
        "second": {"name": library.second.name, "model": library.second.model, "results": second},
        **rank_changes(first, second),
    }


def rank_changes(first: Sequence[Plain], second: Sequence[Plain]) -> Plain:
    """Return how each result of the second list stands to the first, and what was lost.

    A change is how many ranks an item went up (above 0) or down, None for one that is new in the second list.
    """
    before = {hit["id"]: hit["rank"] for hit in first}
    after = {hit["id"] for hit in second}
    changes = {hit["id"]: before[hit["id"]] - hit["rank"] if hit["id"] in before else None for hit in second}
    return {
        "changes": changes,
        "lost": [hit["id"] for hit in first if hit["id"] not in after],
        "shared": len(after & before.keys()),
    }


async def _sources(
    library: Library, request: SearchRequest, files: Sequence[bytes], sides: Sequence[Side]
) -> list[_Source]:
    """Return what is searched by, with a vector for each side."""
    with stage("decode"):
        found = await asyncio.gather(*(_from_file(library, data, request, n) for n, data in enumerate(files)))
        found += [await _from_upload(library, name, request, sides) for name in request.uploads]
        cropped = [await _from_box(library, name, request) for name in request.ids] if request.box else []
    sources = [*found, *cropped]
    with stage("embed"):
        for side in sides:
            waiting = [each for each in sources if each.picture is not None and side.model not in each.vectors]
            if waiting:
                pictures = [each.picture for each in waiting if each.picture is not None]
                for source, vector in zip(waiting, await side.batcher.embed(pictures), strict=True):
                    source.vectors[side.model] = vector
    for source in found[: len(files)]:
        whole = {} if request.box else dict(source.vectors)  # of a part's picture the whole was not embedded
        kept = library.uploads.keep(source.plain.pop("webp"), whole)
        source.plain |= {"upload": kept.name, "thumbnail": f"/uploads/{kept.name}"}
    if request.ids and not cropped:
        sources += await _from_items(library, request.ids, sides)
    rows = unit_rows(request.vectors, library.first.index.dim) if request.vectors else ()
    return [*sources, *(_Source({"kind": "vector"}, vectors={library.first.model: row}) for row in rows)]


async def _from_file(library: Library, data: bytes, request: SearchRequest, number: int) -> _Source:
    boxes = [None] if request.box is None else [None, request.box]  # the whole is kept in any case
    decoded = await library.pool.pictures(data, boxes, webp=KEPT_SIDE, name=f"file {number + 1}")
    return _Source({"kind": "upload", "webp": decoded.webp}, decoded.pictures[-1])


async def _from_upload(library: Library, name: str, request: SearchRequest, sides: Sequence[Side]) -> _Source:
    kept = library.uploads.get(name)
    plain = {"kind": "upload", "upload": name, "thumbnail": f"/uploads/{name}"}
    if request.box is None and all(side.model in kept.vectors for side in sides):
        return _Source(plain, vectors=dict(kept.vectors))
    decoded = await library.pool.pictures(kept.webp, [request.box], name="the picture")
    return _Source(plain, decoded.pictures[0])


async def _from_box(library: Library, name: str, request: SearchRequest) -> _Source:
    """Return a part of an item's picture."""
    item = (await library.items(library.first, [name]))[0]
    data = await library.thumbnails.read(item.metadata)
    decoded = await library.pool.pictures(data, [request.box], within=item.metadata.get("box"), name="the picture")
    return _Source({"kind": "item", **library.plain_item(item.id, item.metadata)}, decoded.pictures[0])


async def _from_items(library: Library, ids: Sequence[str], sides: Sequence[Side]) -> list[_Source]:
    """Return items as sources, with their vectors in each side's index."""
    sources: list[_Source] = []
    for side in sides:
        with stage("search"):
            items = await library.items(side, ids)
        if not sources:
            sources = [_Source({"kind": "item", **library.plain_item(item.id, item.metadata)}) for item in items]
        for source, item in zip(sources, items, strict=True):
            source.ids[side.model] = item.id
            source.vectors[side.model] = item.vector
    return sources


async def _answer(
    library: Library, side: Side, request: SearchRequest, steps: Sequence[Reranking], sources: Sequence[_Source]
) -> Plain:
    """Search one side's index by what was asked."""
    if request.is_one_query:
        examples = await _from_items(library, [*request.like, *request.unlike], [side])
        liked = [*sources, *examples[: len(request.like)]]
        unliked = examples[len(request.like) :]
        if not liked:
            raise Problem(422, "Say what is wanted: files, ids, uploads, vectors, or like.")
        queries = combined_query(_vectors(liked, side), _vectors(unliked, side) if unliked else None)[None]
        leave_out = [[name for each in (*liked, *unliked) for name in _own(each, side)]]
        names = [{"kind": "examples", "of": [each.plain for each in liked], "against": [e.plain for e in unliked]}]
        if sources:
            names[0] |= {key: value for key, value in sources[0].plain.items() if key != "kind"}
    else:
        queries = _vectors(sources, side)
        leave_out = [_own(each, side) for each in sources]
        names = [each.plain for each in sources]
    with stage("search"):
        found = await side.call(search_vectors, side.index, queries, request.k, request.where, steps, leave_out)
    answers = [{"query": name, "results": _plain_hits(library, hits)} for name, hits in zip(names, found, strict=True)]
    return {**library.envelope(side), "queries": answers}


def _own(source: _Source, side: Side) -> list[str]:
    return [source.ids[side.model]] if source.ids else []


def _vectors(sources: Sequence[_Source], side: Side) -> np.ndarray:
    return np.stack([_unit(each.vectors[side.model]) for each in sources])


def _plain_hits(library: Library, hits: Sequence[Hit]) -> list[Plain]:
    return [
        {"rank": hit.rank, "score": round(hit.score, 6), **library.plain_item(hit.id, hit.metadata)} for hit in hits
    ]


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length < 1e-12:
        raise Problem(422, "A vector of zeros, or of numbers too large to measure, points nowhere.")
    return np.asarray(vector / length, np.float32)
