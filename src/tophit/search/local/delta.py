"""The vectors written since the last segment, in memory; the database's log has them on disk."""

import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.approximate import Allowed, Candidates
from tophit.search.local.comparing import compared
from tophit.search.local.keys import rows_of


class Delta:
    """Rows in the order of their keys, searched exactly. A deleted row stays until the next segment."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.count = 0
        self.dead = 0
        self.ids: list[str] = []
        self._keys = np.empty(64, np.int64)
        self._vectors = np.empty((64, dim), np.float32)
        self._live = np.empty(64, bool)

    @classmethod
    def read(cls, dim: int, log: Iterable[tuple[int, str, bytes, int]]) -> "Delta":
        """Read the log: key, id, vector, checksum."""
        keys, ids, blobs = [], [], []
        for key, item_id, blob, checksum in log:
            if zlib.crc32(blob) != checksum or len(blob) != 4 * dim:
                raise TophitError(f"The index is damaged: the vector of '{item_id}' does not match its checksum.")
            keys.append(key)
            ids.append(item_id)
            blobs.append(blob)
        delta = cls(dim)
        vectors = np.frombuffer(b"".join(blobs), np.float32).reshape(-1, dim)
        delta.append(np.array(keys, np.int64), ids, vectors)
        return delta

    @property
    def keys(self) -> np.ndarray:
        """The rows' keys (N,), ascending."""
        return self._keys[: self.count]

    @property
    def vectors(self) -> np.ndarray:
        """The rows' vectors (N, dim)."""
        return self._vectors[: self.count]

    @property
    def live(self) -> np.ndarray | None:
        """Which rows are not deleted; None if no row is deleted."""
        return self._live[: self.count] if self.dead else None

    @property
    def live_count(self) -> int:
        """How many rows are not deleted."""
        return self.count - self.dead

    def append(self, keys: np.ndarray, ids: Sequence[str], vectors: np.ndarray) -> None:
        """Add rows with keys above all before."""
        end = self.count + len(keys)
        if end > len(self._keys):
            room = max(end, 2 * len(self._keys))
            self._keys, self._vectors, self._live = (
                np.concatenate([old[: self.count], np.empty((room - self.count, *old.shape[1:]), old.dtype)])
                for old in (self._keys, self._vectors, self._live)
            )
        self._keys[self.count : end] = keys
        self._vectors[self.count : end] = vectors
        self._live[self.count : end] = True
        self.ids.extend(ids)
        self.count = end

    def kill(self, keys: np.ndarray) -> None:
        """Hide keys from every later search; keys of other parts are ignored."""
        places = rows_of(self.keys, keys)
        self.dead += int(self._live[places].sum())
        self._live[places] = False

    def few_ids_of(self, rows: Sequence[int]) -> list[str]:
        """Return the ids of a few rows."""
        return [self.ids[row] for row in rows]

    def ids_of(self, rows: np.ndarray) -> list[str]:
        """Return the ids of rows (n,)."""
        return self.few_ids_of(rows.tolist())

    def check(self, rows: np.ndarray, sums: np.ndarray) -> None:
        """Nothing to do: the log's checksums were checked when it was read."""

    def texts_of(self, rows: Sequence[int]) -> None:
        """Nothing: the metadata is only in the database."""

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None) -> Candidates:
        """Return the nearest of the allowed rows, or of all live ones."""
        if allowed is not None:
            return compared(queries, self.vectors, k, allowed.rows)
        return compared(queries, self.vectors, k, np.flatnonzero(self._live[: self.count]) if self.dead else None)
