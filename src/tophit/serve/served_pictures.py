"""The pictures of a server: those of items, read only inside their folders, and those that users searched with.

An item's picture is addressed by its id, encrypted with AES-SIV: the address reveals nothing, can't be forged, needs no
table, and stays the same as long as the key is kept.
"""

import asyncio
import base64
import functools
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from tophit.data.item_rows import as_box
from tophit.files import replace_file
from tophit.images.decode import Box
from tophit.serve.decode_pool import DecodePool
from tophit.serve.problems import Problem

SIZES = (160, 320, 1024)
_CACHE_BYTES = 64_000_000
_MOST_FILE_BYTES = 200_000_000
_FILES_AT_ONCE = 4
_MOST_NAME = 4096
_SEALED_NAMES = 32_768
_cipher = functools.lru_cache(maxsize=4)(AESSIV)


@functools.lru_cache(maxsize=_SEALED_NAMES)
def seal(key: bytes, text: str) -> str:
    """Return an id encrypted, for use in an address; those of items that are found often are kept."""
    return base64.urlsafe_b64encode(_cipher(key).encrypt(text.encode(), None)).rstrip(b"=").decode()


def unseal(key: bytes, name: str) -> str | None:
    """Return the id that was encrypted, or None for a name that was not made with this key."""
    if len(name) > _MOST_NAME:
        return None
    try:
        raw = base64.urlsafe_b64decode(name.encode("ascii") + b"=" * (-len(name) % 4))
        return _cipher(key).decrypt(raw, None).decode()
    except (ValueError, InvalidTag):
        return None


@dataclass(frozen=True)
class Upload:
    """A picture that a user searched with, re-encoded, and its vectors by the models' fingerprints."""

    name: str
    webp: bytes
    vectors: dict[str, np.ndarray]


class Uploads:
    """The latest pictures that users searched with, in memory, under names that can't be guessed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, Upload] = OrderedDict()

    async def keep(self, webp: bytes, vectors: dict[str, np.ndarray]) -> Upload:
        """Keep a picture, and drop the least recently used one if there are too many."""
        upload = Upload(secrets.token_urlsafe(16), webp, vectors)
        self._kept[upload.name] = upload
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return upload

    def get(self, name: str) -> Upload:
        """Return a picture that is still kept."""
        if name not in self._kept:
            raise Problem(404, "This picture is no longer kept; send it again.")
        self._kept.move_to_end(name)
        return self._kept[name]


class SharedUploads(Uploads):
    """The same in a folder, for several processes."""

    def __init__(self, most: int, folder: Path) -> None:
        super().__init__(most)
        self._folder = folder

    async def keep(self, webp: bytes, vectors: dict[str, np.ndarray]) -> Upload:
        """Keep a picture, and drop the oldest one if there are too many."""
        upload = Upload(secrets.token_urlsafe(16), webp, vectors)
        await asyncio.to_thread(self._write, upload)
        return upload

    def _write(self, upload: Upload) -> None:
        with replace_file(self._folder / f"{upload.name}.npz") as temporary:
            arrays: dict[str, Any] = {f"of {model}": vector for model, vector in upload.vectors.items()}
            np.savez(temporary, webp=np.frombuffer(upload.webp, np.uint8), **arrays)
        kept = sorted(self._folder.glob("*.npz"), key=_age)
        for path in kept[: -self._most]:
            path.unlink(missing_ok=True)

    def get(self, name: str) -> Upload:
        """Return a picture that is still kept."""
        path = self._folder / f"{name}.npz"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or not path.is_file():
            return super().get(name)
        with np.load(path) as kept:
            vectors = {key.removeprefix("of "): kept[key] for key in kept.files if key != "webp"}
            return Upload(name, kept["webp"].tobytes(), vectors)


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # another process has removed it
        return 0


class Thumbnails:
    """Pictures of items, re-encoded; the latest ones are kept in memory."""

    def __init__(self, pool: DecodePool, roots: Callable[[], list[Path]]) -> None:
        self._pool = pool
        self._roots = roots
        self._cache: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._bytes = 0
        self.turns = asyncio.Semaphore(_FILES_AT_ONCE)
        """Of whole files in memory, to be decoded."""

    async def get(self, metadata: dict[str, Any], size: int) -> bytes:
        """Return an item's picture as WebP, its long side at most one of ``SIZES``."""
        path = self.path(metadata)
        box = box_of(metadata)
        key = (str(path), box, size, path.stat().st_mtime_ns)
        if key not in self._cache:
            async with self.turns:
                made = await self._pool.thumbnail(await self.read(metadata), size, box)
            if key not in self._cache:
                self._cache[key] = made
                self._bytes += len(made)
            while self._bytes > _CACHE_BYTES:
                self._bytes -= len(self._cache.popitem(last=False)[1])
            return made
        self._cache.move_to_end(key)
        return self._cache[key]

    async def read(self, metadata: dict[str, Any]) -> bytes:
        """Return the bytes of an item's file."""
        path = self.path(metadata)
        return await asyncio.to_thread(path.read_bytes)

    def path(self, metadata: dict[str, Any]) -> Path:
        """Return the file of an item, links resolved, if it lies inside the folders that are served."""
        given = metadata.get("path")
        if not isinstance(given, str):
            raise Problem(404, "This item has no picture.")
        try:
            path = Path(given).resolve(strict=True)
            inside = any(path.is_relative_to(root.resolve()) for root in self._roots())
            if not inside or not path.is_file() or path.stat().st_size > _MOST_FILE_BYTES:
                raise Problem(404, "This item's picture is not served.")
        except (OSError, ValueError, RuntimeError):
            raise Problem(404, "This item's picture is missing.") from None
        return path


def box_of(metadata: dict[str, Any]) -> Box | None:
    """Return the part of an item's picture that is the item; a field of that name which is no box means nothing."""
    box = as_box(metadata.get("box"))
    return box if box is not None and all(map(math.isfinite, box)) and box[0] < box[2] and box[1] < box[3] else None


def store_picture(folder: Path, webp: bytes) -> Path:
    """Write the picture of a new item durably under a random name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(16)}.webp"
    with replace_file(path) as temporary:
        temporary.write_bytes(webp)
    return path
