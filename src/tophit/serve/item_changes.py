"""Changes to the index over HTTP: new items by picture or vector, and deletions."""

import asyncio
from collections.abc import Sequence

from tophit.serve.decode_pool import KEPT_SIDE
from tophit.serve.guard import stage
from tophit.serve.library import Library
from tophit.serve.problems import Problem
from tophit.serve.requests import DeleteRequest, UpsertRequest
from tophit.serve.served_pictures import store_picture


async def upsert_items(library: Library, request: UpsertRequest, files: Sequence[bytes]) -> int:
    """Write items durably and return how many. Pictures are re-encoded and stored under random names."""
    request.check(library.limits, len(files))
    model = library.first
    ids = [library.inner_id(item.id) for item in request.items]
    metadata = [dict(item.metadata) for item in request.items]
    if not files:
        vectors = model.unit_vectors([item.vector or [] for item in request.items])
    else:
        with stage("decode"):
            decoded = await asyncio.gather(
                *(library.pool.pictures(d, webp=KEPT_SIDE, name=f"file {n}") for n, d in enumerate(files, 1))
            )
        with stage("embed"):
            vectors = await model.batcher.embed([each.pictures[0] for each in decoded])
        folder = library.own_folder / "images"
        for fields, each in zip(metadata, decoded, strict=True):
            fields["path"] = str((await model.call(store_picture, folder, each.webp)).absolute())
    with stage("search"):
        before = await model.call(model.index.get, ids)
        try:
            await model.upsert(ids, vectors, metadata)
        except BaseException:
            _forget(library, metadata)
            raise
    _forget(library, [item.metadata for item in before if item is not None])
    return len(set(ids))


async def delete_items(library: Library, request: DeleteRequest) -> int:
    """Remove items durably and return how many there were."""
    request.check(library.limits)
    model = library.first
    ids = [name for each in request.ids for name in dict.fromkeys((each, library.inner_id(each)))]
    with stage("search"):
        before = await model.call(model.index.get, ids)
        gone = await model.delete(ids)
    _forget(library, [item.metadata for item in before if item is not None])
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
