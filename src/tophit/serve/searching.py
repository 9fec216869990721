"""From a request to an answer: examples to vectors, vectors to results, and two models' results side by side."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tophit.cancelling import check_cancelled
from tophit.evaluation.calibration_features import DEPTH
from tophit.evaluation.changes import rank_changes
from tophit.search.backend import Hit
from tophit.search.chances import Hits, no_calibration
from tophit.search.groups import GroupedHits
from tophit.search.naming import name_vectors
from tophit.search.query import Box, ItemId, Resolved, answer
from tophit.serve.guard import stage
from tophit.serve.library import Library
from tophit.serve.problems import Problem
from tophit.serve.requests import NameRequest, SearchRequest, SentFile, SentVector, UploadName, WebQuery
from tophit.serve.served_model import ServedModel
from tophit.serve.served_pictures import box_of

Plain = dict[str, Any]
_LARGE = 500
"""Results of searches that wait for each other, so that small ones need not wait for them, nor memory hold many."""


@dataclass
class _Example:
    """An example of a query: how answers show it, its picture if it is still to be embedded, its vectors and ids.

    ``vectors`` and ``ids`` (of an item) are by the models' fingerprints.
    """

    shown: Plain
    picture: np.ndarray | None = None
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def resolved(self, model: ServedModel) -> Resolved:
        """Return what a search by this model needs."""
        return Resolved(self.vectors[model.model], self.ids.get(model.model))


async def search(library: Library, request: SearchRequest, files: Sequence[bytes] = ()) -> Plain:
    """Answer a search by the first model."""
    query = request.to_query(library.limits, files)
    library.check_fields(query.fields)
    models = library.models if files else [library.first]  # a picture that is kept can be compared later
    examples = await _examples(library, query, models)
    return {**library.envelope(library.first), "queries": await _answers(library, library.first, query, examples)}


async def name(library: Library, request: NameRequest, files: Sequence[bytes] = ()) -> Plain:
    """Name what pictures show by the first model's index."""
    query, model = request.to_query(library.limits, files), library.first
    library.check_fields(query.fields)
    calibration = model.catalogue.calibration
    if calibration is None:
        raise no_calibration()
    examples = await _examples(library, query, [model])
    parts = [each.resolved(model) for each in examples]

    def plain() -> list[Plain]:
        found = name_vectors(model.index, parts, calibration, query.where, request.cut_off)
        return [{**one.plain(), "evidence": _plain(library, one.evidence)["results"]} for one in found]

    with stage("search"):
        async with library.large if len(examples) * DEPTH > _LARGE else nullcontext():
            found = await model.call(plain)
    names = [{"query": each.shown, **one} for each, one in zip(examples, found, strict=True)]
    return {**library.envelope(model), "names": names}


async def compare(library: Library, request: SearchRequest, files: Sequence[bytes] = ()) -> Plain:
    """Answer a search of one query by both models, and say how ranks change from the other model to the served one."""
    if library.second is None:
        raise Problem(404, "There is nothing to compare with: the server was started without --against.")
    query = request.to_query(library.limits, files)
    library.check_fields(query.fields)
    if query.group_by is not None:
        raise Problem(422, "Two models are compared item by item; leave group_by out.")
    if query.least:
        raise Problem(422, "Two models are compared on whole lists; leave min_chance and precision out.")
    if request.vectors:
        raise Problem(422, "A vector belongs to one model; compare by files, uploads or ids.")
    if len(query.examples) + (query.text is not None and not query.examples) != 1 and not query.is_combined:
        raise Problem(422, "Two models are compared on one query at a time.")
    examples = await _examples(library, query, library.models)
    first, second = [(await _answers(library, model, query, examples))[0] for model in library.models]
    before, after = ([hit["id"] for hit in found["results"]] for found in (second, first))
    moved, lost = rank_changes(before, after)
    return {
        **library.envelope(library.first),
        "query": first["query"],
        "first": {"name": library.first.name, "model": library.first.model, "results": first["results"]},
        "second": {"name": library.second.name, "model": library.second.model, "results": second["results"]},
        "changes": dict(zip(after, moved, strict=True)),
        "lost": lost,
        "shared": len(before) - len(lost),
    }


async def _examples(library: Library, query: WebQuery, models: Sequence[ServedModel]) -> list[_Example]:
    """Return the examples of a query, with a vector for each model."""
    files = [each for each in query.examples if isinstance(each, SentFile)]
    ids = [each.id for each in query.examples if isinstance(each, ItemId)]
    with stage("decode"):
        found = await _from_files(library, files, query.box)
        for each in query.examples:
            if isinstance(each, UploadName):
                found.append(await _from_upload(library, each.name, query.box, models))
        if query.box is not None:
            found += [await _from_box(library, name, query.box) for name in ids]
    with stage("embed"):
        for model in models:
            waiting = [each for each in found if each.picture is not None and model.model not in each.vectors]
            if waiting:
                pictures = [each.picture for each in waiting if each.picture is not None]
                for example, vector in zip(waiting, await model.batcher.embed(pictures), strict=True):
                    example.vectors[model.model] = vector
    for example in found[: len(files)]:
        whole = {} if query.box else dict(example.vectors)  # with a box, the whole picture was not embedded
        kept = library.uploads.keep(example.shown.pop("webp"), whole)
        example.shown |= {"upload": kept.name, "thumbnail": f"/uploads/{kept.name}"}
    if query.box is None and ids:
        found += await _from_items(library, ids, models)
    vectors = [each.values for each in query.examples if isinstance(each, SentVector)]
    rows = library.first.unit_vectors(vectors) if vectors else ()
    return [*found, *(_Example({"kind": "vector"}, vectors={library.first.model: row}) for row in rows)]


async def _from_files(library: Library, files: Sequence[SentFile], box: Box | None) -> list[_Example]:
    boxes = [None] if box is None else [None, box]  # the whole picture is kept in any case
    decoded = await library.pool.all_pictures([file.data for file in files], boxes)
    return [_Example({"kind": "upload", "webp": each.webp}, each.pictures[-1]) for each in decoded]


async def _from_upload(library: Library, name: str, box: Box | None, models: Sequence[ServedModel]) -> _Example:
    kept = library.uploads.get(name)
    shown = {"kind": "upload", "upload": name, "thumbnail": f"/uploads/{name}"}
    if box is None and all(model.model in kept.vectors for model in models):
        return _Example(shown, vectors=dict(kept.vectors))
    decoded = await library.pool.pictures(kept.webp, [box], name="the picture")
    return _Example(shown, decoded.pictures[0])


async def _from_box(library: Library, name: str, box: Box) -> _Example:
    """Return a part of an item's picture."""
    item = (await library.items(library.first, [name]))[0]
    async with library.thumbnails.turns:
        data, within = await library.thumbnails.read(item.metadata), box_of(item.metadata)
        decoded = await library.pool.pictures(data, [box], within=within, name="the picture")
    return _Example({"kind": "item", **library.plain_item(item.id, item.metadata)}, decoded.pictures[0])


async def _from_items(library: Library, ids: Sequence[str], models: Sequence[ServedModel]) -> list[_Example]:
    """Return items as examples, with their vectors in each model's index."""
    examples: list[_Example] = []
    for model in models:
        with stage("search"):
            items = await library.items(model, ids)
        if not examples:
            examples = [_Example({"kind": "item", **library.plain_item(item.id, item.metadata)}) for item in items]
        for example, item in zip(examples, items, strict=True):
            example.ids[model.model] = item.id
            example.vectors[model.model] = item.vector
    return examples


async def _answers(library: Library, model: ServedModel, query: WebQuery, examples: Sequence[_Example]) -> list[Plain]:
    """Search one model's index; return each query as it was understood, with its results."""
    steering = [each.id for each in (*query.like, *query.unlike) if isinstance(each, ItemId)]
    items = await _from_items(library, steering, [model]) if steering else []
    like, unlike = items[: len(query.like)], items[len(query.like) :]
    shown = [each.shown for each in examples]
    if query.is_combined:
        whole = {"kind": "examples", "of": [*shown, *(e.shown for e in like)], "against": [e.shown for e in unlike]}
        shown = [{**(shown[0] if shown else {}), **whole}]
    text = None
    if query.text is not None:
        with stage("embed"):
            text = (await model.call(model.catalogue.embedder.encode_text, query.text))[0]
        words = {"text": query.text, "text_weight": query.text_weight}
        shown = [{**one, **words} for one in shown] or [{"kind": "text", **words}]
    parts = [[each.resolved(model) for each in some] for some in (examples, like, unlike)]
    large = len(shown) * (query.deepest or query.k) > _LARGE
    with stage("search"):
        async with library.large if large else nullcontext():
            told = model.catalogue.calibration
            found = await model.call(
                lambda: [
                    _plain(library, hits) for hits in answer(model.index, query, *parts, text=text, calibration=told)
                ]
            )
    return [{"query": one, **plain} for one, plain in zip(shown, found, strict=True)]


def _plain(library: Library, hits: Sequence[Hit]) -> Plain:
    check_cancelled()
    plain = [
        {"rank": hit.rank, "score": round(hit.score, 6), **_chance(hit), **library.plain_item(hit.id, hit.metadata)}
        for hit in hits
    ]
    if isinstance(hits, Hits) and hits.nothing is not None:
        return {"results": [], **hits.nothing.plain()}
    if not isinstance(hits, GroupedHits):
        return {"results": plain}
    for one, hit in zip(plain, hits, strict=True):
        one["others"] = len(hit.others)
    return {"results": plain, "stopped_at": hits.stopped_at}


def _chance(hit: Hit) -> Plain:
    return {} if hit.chance is None else {"chance": round(hit.chance, 4)}
