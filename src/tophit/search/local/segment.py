"""A segment: vectors that never change, on disk, with their keys and ids, searched exactly or through a FAISS index.

Eight files, or nine with an index: the vectors as float32 (N, dim), their keys, a checksum each, the ids and where each
ends, the metadata as JSON, where each ends and its checksum. All are memory-mapped, so opening reads almost nothing.
Segments of earlier versions have no metadata; the database always has it.
"""

import mmap
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np
import pyarrow as pa

from tophit.errors import TophitError
from tophit.files import sync
from tophit.search.local.approximate import Allowed, Approximate, Candidates
from tophit.search.local.comparing import compared
from tophit.search.local.database import WriteFailed
from tophit.search.local.keys import rows_of
from tophit.search.local.snapshot import FileFacts, HashedFile, SegmentFacts, remove_all

if TYPE_CHECKING:
    from tophit.search.local.part_search import Part

_CHUNK = 65_536
_FILES = {
    "vectors": np.float32,
    "keys": np.int64,
    "sums": np.uint32,
    "ends": np.int64,
    "ids": np.uint8,
    "texts": np.uint8,
    "text-ends": np.int64,
    "text-sums": np.uint32,
}


class Segment:
    """An open segment. Deleted rows are known in memory; on disk the database's tombstones name them."""

    def __init__(self, folder: Path, facts: SegmentFacts, dim: int, tombstones: np.ndarray) -> None:
        self.facts = facts
        self.folder = folder
        self.vectors = self._map("vectors").reshape(-1, dim)
        self.keys = self._map("keys")
        self._ends = self._map("ends")
        self._end_of = self._ends.data  # whose numbers are Python's: faster one by one
        self._ids = self._open_bytes("ids")
        self._texts = self._open_texts()
        self.approximate = self._open_approximate()
        self._live: np.ndarray | None = None
        self.dead = 0
        self.kill(tombstones)

    @property
    def live(self) -> np.ndarray | None:
        """Which rows are not deleted; None if no row is deleted."""
        return self._live

    @property
    def live_count(self) -> int:
        """How many rows are not deleted."""
        return self.facts.count - self.dead

    def kill(self, keys: np.ndarray) -> None:
        """Hide keys from every later search; keys of other parts are ignored."""
        rows = rows_of(self.keys, keys)
        if not len(rows):
            return
        if self._live is None:
            self._live = np.ones(self.facts.count, bool)
        self._live[rows] = False
        self.dead = self.facts.count - int(self._live.sum())
        if self.approximate is not None:
            self.approximate.keep(self._live)

    def few_ids_of(self, rows: Sequence[int]) -> list[str]:
        """Return the ids of a few rows."""
        ids, ends = self._ids, self._end_of
        return [ids[ends[row - 1] if row else 0 : ends[row]].decode() for row in rows]

    def ids_of(self, rows: np.ndarray) -> list[str]:
        """Return the ids of rows (n,): faster for many."""
        places = pa.py_buffer(np.ascontiguousarray(rows, np.int64))  # pa.array would import pandas, which takes a while
        return self._all_ids.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, places])).to_pylist()

    def texts_of(self, rows: Sequence[int]) -> list[str] | None:
        """Return the metadata of rows, as JSON; None if the segment does not have it, as older ones."""
        return None if self._texts is None else self._texts.read(rows)

    @cached_property
    def _all_ids(self) -> pa.LargeStringArray:
        """The mapped ids as Arrow's strings: reading many is six times as fast as one by one. Checked once."""
        starts = pa.py_buffer(np.concatenate([[0], self._ends]))
        ids = pa.LargeStringArray.from_buffers(len(self._ends), starts, pa.py_buffer(self._ids))
        try:
            ids.validate(full=True)
        except pa.ArrowInvalid as error:
            raise TophitError(f"The index in {self.folder} is damaged: its ids can't be read; repair it.") from error
        return ids

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None) -> Candidates:
        """Return the nearest of the allowed rows, or of all live ones."""
        if self.approximate is None or (allowed is not None and not allowed.are_many):
            return self._compared(queries, k, allowed)
        if allowed is None:
            found = self.approximate.search(queries, k)
        else:
            found = self.approximate.search_among(queries, k, allowed)
        if not self.approximate.is_ivf:  # a walk through HNSW's graph may not get out of a neighbourhood of dead rows
            short = np.flatnonzero(found.rows[:, -1] < 0)
            if len(short):
                again = self._compared(queries[short], k, allowed)
                width = again.rows.shape[1]
                found.rows[short, :width], found.scores[short, :width] = again.rows, again.scores
        return found

    def _compared(self, queries: np.ndarray, k: int, allowed: Allowed | None) -> Candidates:
        if allowed is not None:
            return compared(queries, self.vectors, k, allowed.rows)
        return compared(queries, self.vectors, k, None if self._live is None else np.flatnonzero(self._live))

    def check(self, rows: np.ndarray, sums: np.ndarray) -> None:
        """Raise if rows do not have the checksums they were written with."""
        wrong = np.flatnonzero(self._map("sums")[rows] != sums)
        if len(wrong):
            (name,) = self.few_ids_of([int(rows[wrong[0]])])
            raise TophitError(
                f"The index in {self.folder} is damaged: {len(wrong)} vectors, the first of '{name}', do not match "
                "their checksums; repair it."
            )

    def _path(self, part: str) -> Path:
        path = self.folder / f"{self.facts.name}.{part}"
        expected = self.facts.files[path.name].bytes
        try:
            size = path.stat().st_size
        except OSError as error:
            raise TophitError(f"The index in {self.folder} is damaged: {path.name} can't be read ({error}).") from error
        if size != expected:
            raise TophitError(
                f"The index in {self.folder} is damaged: {path.name} has {size} bytes instead of {expected}."
            )
        return path

    def _map(self, part: str) -> np.ndarray:
        return np.asarray(np.memmap(self._path(part), _FILES[part], "r"))

    def _open_bytes(self, part: str) -> mmap.mmap:
        with self._path(part).open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _open_texts(self) -> "_Texts | None":
        if f"{self.facts.name}.texts" not in self.facts.files:
            return None
        ends, sums = (self._map(part).data for part in ("text-ends", "text-sums"))
        return _Texts(self.folder, self._open_bytes("texts"), ends, sums)

    def _open_approximate(self) -> Approximate | None:
        if self.facts.kind == "flat":
            return None
        path = self._path("faiss")
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise TophitError(f"The index in {self.folder} is damaged: {path.name} can't be read.") from error
        return Approximate(index, self.facts.tuning, self.vectors)


@dataclass(frozen=True)
class _Texts:
    """The metadata of a segment's rows, as JSON: a copy of what the database has, which is slower to read."""

    folder: Path
    content: mmap.mmap
    ends: memoryview
    sums: memoryview

    def read(self, rows: Sequence[int]) -> list[str]:
        """Return the metadata of rows; damaged ones are an error."""
        content, ends, sums = self.content, self.ends, self.sums
        texts = [content[ends[row - 1] if row else 0 : ends[row]] for row in rows]
        if list(map(zlib.crc32, texts)) != [sums[row] for row in rows]:
            raise TophitError(
                f"The index in {self.folder} is damaged: metadata does not match its checksum; repair it."
            )
        return [text.decode() for text in texts]


def write_segment(
    folder: Path, sources: "Sequence[Part]", texts_of: Callable[[Sequence[int]], list[str]]
) -> SegmentFacts | None:
    """Write the live rows of the sources, whose keys ascend from one to the next, as a flat segment; None if none.

    ``texts_of`` reads the metadata of items by their keys, where a source does not have it.
    """
    name = f"segment-{uuid.uuid4().hex[:12]}"
    files: dict[str, HashedFile] = {}
    count = end = text_end = 0
    try:
        files.update((part, HashedFile(folder / f"{name}.{part}")) for part in _FILES)
        for source, rows in _chunks(sources):
            vectors = np.ascontiguousarray(source.vectors[rows])
            sums = checksums(vectors)
            source.check(rows, sums)
            ids = [one.encode() for one in source.ids_of(rows)]
            ends = end + np.cumsum([len(one) for one in ids])
            keys = np.ascontiguousarray(source.keys[rows])
            texts = [one.encode() for one in source.texts_of(rows.tolist()) or texts_of(keys.tolist())]
            text_ends = text_end + np.cumsum([len(one) for one in texts])
            content: dict[str, Any] = {
                "vectors": vectors,
                "keys": keys,
                "sums": sums,
                "ends": ends,
                "ids": b"".join(ids),
                "texts": b"".join(texts),
                "text-ends": text_ends,
                "text-sums": np.array(list(map(zlib.crc32, texts)), np.uint32),
            }
            for part, values in content.items():
                files[part].write(values)
            count, end, text_end = count + len(rows), int(ends[-1]), int(text_ends[-1])
        facts = {file.path.name: file.finish() for file in files.values()}
        sync(folder)
    except OSError as error:
        _discard(folder, files)
        raise WriteFailed(f"A segment can't be written to {folder}: {error}. The index is unchanged.") from error
    except BaseException:
        _discard(folder, files)
        raise
    if not count:
        _discard(folder, files)
        return None
    return SegmentFacts(name, count, "flat", facts)


def add_approximate(folder: Path, facts: SegmentFacts, index: Any, kind: str, tuning: dict[str, Any]) -> SegmentFacts:
    """Write a FAISS index over a segment's rows beside it and return the facts of both."""
    path = folder / f"{facts.name}.faiss"
    file = HashedFile(path)
    failures: list[OSError] = []

    def write(content: bytes) -> None:
        try:
            file.write(content)
        except OSError as error:
            failures.append(error)
            raise

    try:
        faiss.write_index(index, faiss.PyCallbackIOWriter(write, 1 << 20))  # type: ignore[attr-defined]
        written: FileFacts = file.finish()
        sync(folder)
    except (OSError, RuntimeError) as error:
        file.close()
        remove_all(folder, {path.name})
        reason = failures[0] if failures else error
        raise WriteFailed(f"{path} can't be written: {reason}. The index is unchanged.") from error
    return replace(facts, kind=kind, tuning=tuning, files={**facts.files, path.name: written})


def checksums(vectors: np.ndarray) -> np.ndarray:
    """Return the CRC-32 of each vector's bytes (N,)."""
    view, size = np.ascontiguousarray(vectors).data.cast("B"), vectors.shape[1] * 4
    return np.fromiter((zlib.crc32(view[i : i + size]) for i in range(0, len(view), size)), np.uint32, len(vectors))


def _chunks(sources: "Sequence[Part]") -> "Iterator[tuple[Part, np.ndarray]]":
    for source in sources:
        live = source.live
        rows = np.arange(len(source.keys)) if live is None else np.flatnonzero(live)
        for start in range(0, len(rows), _CHUNK):
            yield source, rows[start : start + _CHUNK]


def _discard(folder: Path, files: dict[str, HashedFile]) -> None:
    for file in files.values():
        file.close()
    remove_all(folder, {file.path.name for file in files.values()})
