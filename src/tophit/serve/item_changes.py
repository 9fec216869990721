"""Changes to the index over HTTP: new items by picture or vector, and deletions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tophit.errors import UsageError
from tophit.serve.guard import Caller, stage
from tophit.serve.library import Library
from tophit.serve.problems import Problem, is_full
from tophit.serve.requests import DeleteRequest, UpsertRequest
from tophit.serve.served_pictures import store_picture


async def upsert_items(library: Library, request: UpsertRequest, files: Sequence[bytes], caller: Caller) -> int:
    """Write items durably and return how many. Pictures are re-encoded and stored under random names."""
    request.check(library.limits, len(files))
    model = library.first
    metadata = [dict(item.metadata) for item in request.items]
    pictures: list[bytes] = []
    if not files:
        vectors = model.unit_vectors([item.vector or [] for item in request.items])
    else:
        with stage("decode"):
            decoded = await library.pool.all_pictures(files)
        with stage("embed"):
            vectors = await model.batcher.embed([each.pictures[0] for each in decoded])
        pictures = [each.webp for each in decoded]
    names = [item.id for item in request.items]
    with stage("search"):
        return await library.change("upsert", caller, names, _write(library, names, vectors, metadata, pictures))


async def delete_items(library: Library, request: DeleteRequest, caller: Caller) -> int:
    """Remove items durably and return how many there were."""
    request.check(library.limits)
    with stage("search"):
        return await library.change("delete", caller, request.ids, _delete(library, request.ids))


async def _write(
    library: Library, names: list[str], vectors: np.ndarray, metadata: list[dict[str, Any]], pictures: list[bytes]
) -> int:
    model, folder = library.first, library.own_folder / "images"
    try:
        for fields, webp in zip(metadata, pictures, strict=False):  # none with vectors
            fields["path"] = str((await model.call(store_picture, folder, webp)).absolute())
        ids = await library.inner_ids(names)
        before = await model.call(model.index.get, ids)
        await model.upsert(ids, vectors, metadata)
    except Exception as error:
        model.failed(error)
        if isinstance(error, UsageError) or is_full(error):  # else it is unknown whether the items are there
            await model.call(_forget, library, metadata)
        raise
    await model.call(_forget, library, [item.metadata for item in before if item is not None])
    return len(set(ids))


async def _delete(library: Library, names: list[str]) -> int:
    model = library.first
    ids = list(dict.fromkeys(one for name in names for one in library.names.possible(name)))
    before = await model.call(model.index.get, ids)
    gone = await model.delete(ids)
    await model.call(_forget, library, [item.metadata for item in before if item is not None])
    return gone


def _forget(library: Library, metadata: Sequence[dict]) -> None:
    """Delete the stored pictures of items that were deleted or replaced; the user's own files are never touched."""
    folder = (library.own_folder / "images").resolve()
    for fields in metadata:
        try:
            path = library.thumbnails.path(fields)
        except Problem:
            continue
        if path.parent == folder:
            path.unlink(missing_ok=True)
