"""From a request to an answer: examples to vectors, vectors to results, and two models' results side by side."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tophit.cancelling import check_cancelled
from tophit.evaluation.calibration_features import DEPTH
from tophit.evaluation.changes import rank_changes
from tophit.search.backend import Hit
from tophit.search.chances import CHANCE_DIGITS, Hits, no_calibration
from tophit.search.groups import GroupedHits
from tophit.search.naming import name_vectors
from tophit.search.query import Box, ItemId, Resolved, answer
from tophit.serve.guard import stage
from tophit.serve.library import Library, no_item
from tophit.serve.problems import Problem
from tophit.serve.requests import NameRequest, SearchRequest, SentFile, SentVector, UploadName, WebQuery
from tophit.serve.served_model import SMALL_SEARCH, ServedModel
from tophit.serve.served_pictures import box_of

Plain = dict[str, Any]


@dataclass
class _Example:
    """An example of a query: how answers show it, its picture if it is still to be embedded, its vectors and ids.

    ``vectors`` and ``ids`` (of an item) are by the models' fingerprints. Of an item that is still to be looked up, only
    the name is known that a client gave it.
    """

    shown: Plain
    picture: np.ndarray | None = None
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    item_name: str | None = None

    def resolved(self, model: ServedModel) -> Resolved:
        """Return what a search by this model needs."""
        return Resolved(self.vectors[model.model], self.ids.get(model.model))


@dataclass
class _Asked:
    """What a request searches by."""

    examples: list[_Example]
    like: list[_Example] = field(default_factory=list)
    unlike: list[_Example] = field(default_factory=list)
    text: np.ndarray | None = None

    @property
    def all(self) -> list[_Example]:
        """Its examples for and against."""
        return [*self.examples, *self.like, *self.unlike]

    def resolved(self, model: ServedModel) -> list[list[Resolved]]:
        """Return the examples, and those for and against, for a search by a model."""
        return [[each.resolved(model) for each in some] for some in (self.examples, self.like, self.unlike)]


async def search(library: Library, request: SearchRequest, files: Sequence[bytes] = ()) -> Plain:
    """Answer a search by the first model."""
    query = request.to_query(library.limits, files)
    library.check_fields(query.fields)
    models = library.models if files else [library.first]  # a picture that is kept can be compared later
    found = await _answers(library, library.first, query, await _asked(library, query, models))
    return {**library.envelope(library.first), "queries": found}


async def name(library: Library, request: NameRequest, files: Sequence[bytes] = ()) -> Plain:
    """Name what pictures show by the first model's index."""
    query, model = request.to_query(library.limits, files), library.first
    library.check_fields(query.fields)
    calibration = model.catalogue.calibration
    if calibration is None:
        raise no_calibration()
    asked = await _asked(library, query, [model])

    def plain() -> list[Plain]:
        if (problem := _look_up(library, model, [asked])[0]) is not None:
            raise problem
        parts = [each.resolved(model) for each in asked.examples]
        found = name_vectors(model.index, parts, calibration, query.where, request.cut_off)
        return [{**one.plain(), "evidence": _plain(library, one.evidence)["results"]} for one in found]

    with stage("search"):
        async with library.large if len(asked.examples) * DEPTH > SMALL_SEARCH else nullcontext():
            found = await model.call(plain)
    names = [{"query": each.shown, **one} for each, one in zip(asked.examples, found, strict=True)]
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
    asked = await _asked(library, query, library.models)
    first, second = [(await _answers(library, model, query, asked))[0] for model in library.models]
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


async def _asked(library: Library, query: WebQuery, models: Sequence[ServedModel]) -> _Asked:
    """Return the examples of a query: pictures with a vector for each model, items by their names."""
    files = [each for each in query.examples if isinstance(each, SentFile)]
    ids = [each.id for each in query.examples if isinstance(each, ItemId)]
    uploads = [each for each in query.examples if isinstance(each, UploadName)]
    found: list[_Example] = []
    if files or uploads or query.box is not None:
        found = await _pictures(library, query, files, uploads, ids, models)
    if query.box is None:
        found += map(_item, ids)
    vectors = [each.values for each in query.examples if isinstance(each, SentVector)]
    rows = library.first.unit_vectors(vectors) if vectors else ()
    found += [_Example({"kind": "vector"}, vectors={library.first.model: row}) for row in rows]
    like, unlike = (
        [_item(each.id) for each in some if isinstance(each, ItemId)] for some in (query.like, query.unlike)
    )
    return _Asked(found, like, unlike)


def _item(name: str) -> _Example:
    return _Example({}, item_name=name)


async def _pictures(
    library: Library,
    query: WebQuery,
    files: Sequence[SentFile],
    uploads: Sequence[UploadName],
    ids: Sequence[str],
    models: Sequence[ServedModel],
) -> list[_Example]:
    """Return pictures that are examples, with a vector for each model; of items only with a box."""
    with stage("decode"):
        found = await _from_files(library, files, query.box)
        found += [await _from_upload(library, each.name, query.box, models) for each in uploads]
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
        kept = await library.uploads.keep(example.shown.pop("webp"), whole)
        example.shown |= {"upload": kept.name, "thumbnail": f"/uploads/{kept.name}"}
    return found


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
    item = (await library.items([name]))[0]
    async with library.thumbnails.turns:
        data, within = await library.thumbnails.read(item.metadata), box_of(item.metadata)
        decoded = await library.pool.pictures(data, [box], within=within, name="the picture")
    return _Example({"kind": "item", **library.plain_item(item.id, item.metadata)}, decoded.pictures[0])


async def _answers(library: Library, model: ServedModel, query: WebQuery, asked: _Asked) -> list[Plain]:
    """Search one model's index; return each query as it was understood, with its results."""
    if query.text is not None:
        with stage("embed"):
            asked = replace(asked, text=(await model.call(model.catalogue.embedder.encode_text, query.text))[0])
    queries = 1 if query.is_combined else max(1, len(asked.examples))
    size = queries * (query.deepest or query.k)
    work = partial(_answered, library, model, query)
    with stage("search"):
        if size <= SMALL_SEARCH and _is_plain(query):
            return await model.joiner.do((query.k, repr(query.where), query.least), work, asked, size)
        async with library.large if size > SMALL_SEARCH else nullcontext():
            found = (await model.call(work, [asked]))[0]
    if isinstance(found, Problem):
        raise found
    return found


def _is_plain(query: WebQuery) -> bool:
    """Whether it can be answered together with others that differ from it in their examples only."""
    return not (query.is_combined or query.rerank or query.group_by or query.text)


def _answered(
    library: Library, model: ServedModel, query: WebQuery, requests: Sequence[_Asked]
) -> list[list[Plain] | Problem]:
    """Answer requests by one search of the index: each with its queries and results, or with a problem of its own.

    ``query`` is that of any of them: they differ in their examples only. One that is not plain comes alone.
    """
    problems = _look_up(library, model, requests)
    good = [one for one, problem in zip(requests, problems, strict=True) if problem is None]
    if not good:
        return [problem or [] for problem in problems]
    together = replace(good[0], examples=[each for one in good for each in one.examples])
    calibration = model.catalogue.calibration
    found = iter(answer(model.index, query, *together.resolved(model), text=together.text, calibration=calibration))
    return [
        problem or [{"query": shown, **_plain(library, next(found))} for shown in _shown(query, one)]
        for one, problem in zip(requests, problems, strict=True)
    ]


def _look_up(library: Library, model: ServedModel, requests: Sequence[_Asked]) -> list[Problem | None]:
    """Give the examples that are items their vectors in a model's index; return what is wrong with each request."""
    waiting = [each for one in requests for each in one.all if each.item_name is not None]
    names = [each.item_name or "" for each in waiting]
    missing: dict[int, Problem] = {}
    for example, item in zip(waiting, library.find_items(model, names), strict=True):
        if item is None:
            missing[id(example)] = no_item(example.item_name or "")
            continue
        example.shown = example.shown or {"kind": "item", **library.plain_item(item.id, item.metadata)}
        example.ids[model.model], example.vectors[model.model] = item.id, item.vector
    return [next((missing[id(each)] for each in one.all if id(each) in missing), None) for one in requests]


def _shown(query: WebQuery, asked: _Asked) -> list[Plain]:
    """Return each query of a request as it was understood."""
    shown = [each.shown for each in asked.examples]
    if query.is_combined:
        of, against = [*shown, *(each.shown for each in asked.like)], [each.shown for each in asked.unlike]
        shown = [{**(shown[0] if shown else {}), "kind": "examples", "of": of, "against": against}]
    if query.text is None:
        return shown
    words = {"text": query.text, "text_weight": query.text_weight}
    return [{**one, **words} for one in shown] or [{"kind": "text", **words}]


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
    return {} if hit.chance is None else {"chance": round(hit.chance, CHANCE_DIGITS)}
