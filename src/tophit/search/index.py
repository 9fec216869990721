"""The index: a folder with exact FAISS vectors, the items they stand for, and the embedder that made them.

``index.json`` names the files in force and is replaced last, atomically, so a crash leaves the old or the new index.
"""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tophit.errors import TophitError
from tophit.files import replace_file, write_text
from tophit.search.engine import Hit

_FORMAT = 1
_MANIFEST = "index.json"


def is_index(folder: Path) -> bool:
    """Say whether a folder holds an index."""
    return (folder / _MANIFEST).is_file()


class Index:
    """Unit vectors with ids and metadata; search is exact, by cosine similarity."""

    def __init__(
        self, vectors: "faiss.Index", ids: Sequence[str], metadata: Sequence[dict[str, Any]], fingerprint: str
    ) -> None:
        self.vectors = vectors
        self.ids = list(ids)
        self.metadata = list(metadata)
        self.fingerprint = fingerprint

    @classmethod
    def build(
        cls, vectors: np.ndarray, ids: Sequence[str], metadata: Sequence[dict[str, Any]], fingerprint: str
    ) -> "Index":
        """Make an index of vectors (N, d); ``fingerprint`` names the embedder that made them."""
        if not len(vectors) == len(ids) == len(metadata):
            raise ValueError(
                f"{len(vectors)} vectors, {len(ids)} ids and {len(metadata)} metadata must be equally many"
            )
        if len(set(ids)) != len(ids):
            raise TophitError("Ids must be different from each other.")
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(np.ascontiguousarray(vectors, np.float32))
        return cls(flat, ids, metadata, fingerprint)

    def __len__(self) -> int:
        return len(self.ids)

    def search(self, queries: np.ndarray, k: int = 10) -> list[list[Hit]]:
        """Return the k nearest items of each query vector (Q, d), best first; fewer if the index is smaller."""
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        queries = np.atleast_2d(np.ascontiguousarray(queries, np.float32))
        if queries.shape[1] != self.vectors.d:
            raise TophitError(f"The index holds vectors of {self.vectors.d} numbers, the query has {queries.shape[1]}.")
        if not len(self):
            return [[] for _ in queries]
        scores, places = self.vectors.search(queries, min(k, len(self)))
        return [
            [
                Hit(rank, float(score), self.ids[place], self.metadata[place])
                for rank, (score, place) in enumerate(zip(*row, strict=True), 1)
            ]
            for row in zip(scores, places.tolist(), strict=True)
        ]

    def save(self, folder: str | Path) -> None:
        """Write the index; one that is there already stays whole until the new one is."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        version = uuid.uuid4().hex[:12]
        names = {"vectors": f"vectors-{version}.faiss", "items": f"items-{version}.parquet"}
        with replace_file(folder / names["vectors"]) as temporary:
            faiss.write_index(self.vectors, str(temporary))
        with replace_file(folder / names["items"]) as temporary:
            pq.write_table(
                pa.table({"id": self.ids, "metadata": [json.dumps(m, ensure_ascii=False) for m in self.metadata]}),
                temporary,
            )
        manifest = {"format": _FORMAT, **names, "count": len(self), "embedder": self.fingerprint}
        write_text(folder / _MANIFEST, json.dumps(manifest, indent=2) + "\n")
        for pattern in ("vectors-*.faiss", "items-*.parquet"):
            for old in folder.glob(pattern):
                if old.name not in names.values():
                    old.unlink()

    @classmethod
    def open(cls, folder: str | Path) -> "Index":
        """Open the index in a folder."""
        folder = Path(folder)
        path = folder / _MANIFEST
        if not path.is_file():
            raise TophitError(f"There is no index in {folder} (no {_MANIFEST} there); make one with: tophit index")
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if manifest["format"] != _FORMAT:
                raise TophitError(f"{path} has format {manifest['format']}; this version of Tophit reads {_FORMAT}.")
            vectors = faiss.read_index(str(folder / manifest["vectors"]))
            items = pq.read_table(folder / manifest["items"])
            metadata = [json.loads(text) for text in items["metadata"].to_pylist()]
        except (ValueError, KeyError, RuntimeError, OSError) as error:
            raise TophitError(f"The index in {folder} is damaged: {error}") from error
        index = cls(vectors, items["id"].to_pylist(), metadata, manifest["embedder"])
        if not vectors.ntotal == len(index) == manifest["count"]:
            raise TophitError(
                f"The index in {folder} is damaged: {manifest['count']} items stated, "
                f"{vectors.ntotal} vectors and {len(index)} items found."
            )
        return index
