"""Milvus: a cluster at an address, or Milvus Lite in a file, behind the same interface.

Searches and reads ask for strong consistency, so every search sees every write that returned. What "durable" means is
Milvus's promise: a cluster answers when its replicated log holds the write. Milvus Lite only hands it to the operating
system, so for a file the backend itself flushes what changed before it returns. A Milvus Lite *server* at an address
keeps writes if its process is killed, but not if the power fails.

Milvus and Milvus Lite differ in how they compare JSON values of different types. So each item also stores its
metadata's scalars under keys that name their type (``n:price``, ``s:label``, ``b:sold``), and a condition asks only for
the key of its value's type. Numbers are stored as floats: integers beyond 2^53 are compared as their nearest float.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tophit.data.item_rows import LABELS, listed_labels
from tophit.errors import TophitError, UsageError
from tophit.files import sync
from tophit.registry import register
from tophit.search.backend import Hit, Item
from tophit.search.exact import exact_scores
from tophit.search.filters import Condition
from tophit.search.prepare import MOST_ID_BYTES
from tophit.search.remote import check_name, closed_on_error, import_package, pinned, read_pinned

if TYPE_CHECKING:
    from pymilvus import MilvusClient

_GRPC = {"grpc.keepalive_time_ms": 330_000}
"""pymilvus asks every 10 s whether the server is there; a gRPC server hangs up on who asks within 5 minutes."""
_EXTRA = "milvus"
_BUILT = {"HNSW": {"M": 16, "efConstruction": 200}, "IVF_FLAT": {"nlist": 1024}}  # the defaults
_PINNED = "tophit"  # the collection property that holds the description
_MOST_RESULTS = 16384  # Milvus's limit of one search or query
_CALL_BYTES = 16 * 2**20  # of one write; gRPC's usual limit is 64 MB
_IDS_IN_A_CALL = 1000
_SPARE = 16  # more candidates than asked for, so that equal scores at the end can be ordered by id
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


@register(
    "backend",
    "milvus",
    prefixes=("http://", "https://", "tcp://"),
    suffixes=(".db",),
    address_like="an address, or a file ending in .db",
    kinds=("flat", "hnsw"),
    other_kinds=True,
    secrets={"token": "TOPHIT_MILVUS_TOKEN"},
)
class MilvusBackend:
    """Items in a Milvus collection; see :class:`tophit.search.backend.Backend`.

    ``location`` is an address such as ``http://host:19530`` or a file ending in .db; ``token`` is ``user:password``
    or an API key.
    """

    def __init__(self, location: str, collection: str, token: str) -> None:
        self._milvus = import_package("pymilvus", _EXTRA)
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints a traceback beside every exception
        self._location, self._collection = str(location), check_name(collection, "collection")
        self._shown = re.sub(r"//[^@/]*@", "//", self._location)  # without a password
        self._file = None if "://" in self._location else Path(self._location)
        if self._file is not None and self._file.suffix != ".db":
            raise UsageError(
                f"A Milvus location is an address such as http://localhost:19530 or a file ending in .db, "
                f"not {self._shown!r}."
            )
        self._client = self._connect(token)
        self._synced: dict[Path, tuple[int, int]] = {}
        self.dim, self.fingerprint, self.kind = 0, "", "FLAT"

    @classmethod
    def create(
        cls,
        location: str,
        dim: int,
        fingerprint: str,
        *,
        collection: str = "tophit",
        index: str = "FLAT",
        index_options: Mapping[str, Any] | None = None,
        shards: int = 1,
        token: str = "",
    ) -> "MilvusBackend":
        """Create a collection. ``index`` is FLAT, which is exact, or another kind with its ``index_options``."""
        index = index.upper()
        backend = cls(location, collection, token)
        with closed_on_error(backend):
            backend._make(pinned(dim, fingerprint, index=index), dim, index, dict(index_options or {}), shards)
            backend._sync()
            backend._read_pinned()
        return backend

    @classmethod
    def open(cls, location: str, *, collection: str = "tophit", token: str = "") -> "MilvusBackend":
        """Open a collection that :meth:`create` made."""
        backend = cls(location, collection, token)
        with closed_on_error(backend):
            if not backend._exists():
                raise TophitError(
                    f"There is no index: Milvus at {backend._shown} has no collection {backend._collection}; "
                    "make one with: tophit index"
                )
            backend._read_pinned()
        return backend

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Add or replace items, in as many calls as Milvus needs; each call is whole or not at all."""
        rows: list[dict[str, Any]] = []
        size = 0
        for item_id, vector, each in zip(ids, np.asarray(vectors, np.float32), metadata, strict=True):
            rows.append({"id": item_id, "vector": vector, "metadata": dict(each), "fields": filterable_fields(each)})
            size += vector.nbytes + 2 * len(json.dumps(dict(each)))
            if size > _CALL_BYTES:
                self._upsert(rows)
                rows, size = [], 0
        if rows:
            self._upsert(rows)
        self._sync()

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items and return how many there were."""
        found = 0
        for part in _parts(ids):
            there = self._query(_any_of(part), ["id"])
            if there:
                with self._errors():
                    self._client.delete(self._collection, filter=_any_of([row["id"] for row in there]))
            found += len(there)
        self._sync()
        return found

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        """Return the item of each id, None where there is none."""
        found: dict[str, Item] = {}
        for part in _parts(ids):
            rows = self._query(_any_of(part), ["id", "vector", "metadata"])
            found |= {row["id"]: _item(row) for row in rows}
        return [found.get(each) for each in ids]

    def search(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = (), with_metadata: bool = True
    ) -> list[list[Hit]]:
        """Return up to k nearest items of each query (Q, dim), scored again from their vectors."""
        if k > _MOST_RESULTS:
            raise UsageError(f"Milvus returns up to {_MOST_RESULTS} results, not {k}.")
        queries = np.atleast_2d(np.asarray(queries, np.float32))
        expression = filter_expression(where)
        answers: list[list[Hit]] = [[] for _ in queries]
        waiting, limit = list(range(len(queries))), min(k + _SPARE, _MOST_RESULTS)
        while waiting:
            found = self._candidates(queries[waiting], limit, expression, with_metadata)
            cut_off: list[int] = []
            for place, items in zip(waiting, found, strict=True):
                answers[place], tied = _best_hits(queries[place], items, k)
                if tied and len(items) >= limit and limit < _MOST_RESULTS:
                    cut_off.append(place)
            waiting, limit = cut_off, min(4 * limit, _MOST_RESULTS)
        return answers

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Return how many items meet every condition."""
        rows = self._query(filter_expression(where), ["count(*)"])
        return int(rows[0]["count(*)"])

    def items(self, batch: int = 1024) -> Iterator[list[Item]]:
        """Iterate over all items in batches, ordered by id; each batch is a query of its own."""
        beyond = f"id >= {literal('')}"
        while rows := self._first_by_id(beyond, min(batch, _MOST_RESULTS)):
            yield [_item(row) for row in rows]
            beyond = f"id > {literal(rows[-1]['id'])}"

    def compact(self) -> None:
        """Seal what was written since and merge small segments."""
        with self._errors():
            self._client.flush(self._collection)
            self._client.compact(self._collection)
        self._sync()

    def stats(self) -> dict[str, Any]:
        """Return count, dim, kind of index, version, and where the collection is."""
        with self._errors():
            version = self._client.get_server_version()
        stats = {
            "engine": "milvus",
            "collection": self._collection,
            "location": self._shown,
            "count": self.count(),
            "dim": self.dim,
            "kind": self.kind,
            "version": f"Milvus {version}",
        }
        if self._file is not None:
            stats["bytes"] = sum(path.stat().st_size for path in self._file.rglob("*") if path.is_file())
        return stats

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    @property
    def _where(self) -> str:
        return f"The collection {self._collection}"

    def _connect(self, token: str) -> "MilvusClient":
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            import_package("milvus_lite", _EXTRA)
        try:
            return self._milvus.MilvusClient(uri=self._location, token=token, timeout=10, grpc_options=_GRPC)
        except (self._milvus.MilvusException, ValueError, OSError) as error:
            raise TophitError(f"Milvus can't be reached at {self._shown}: {_message(error)}") from error

    def _exists(self) -> bool:
        with self._errors():
            return bool(self._client.has_collection(self._collection))

    def _make(self, description: str, dim: int, index: str, index_options: dict[str, Any], shards: int) -> None:
        if self._exists():
            raise TophitError(f"{self._where} exists already; open it, or choose another name.")
        client, kinds = self._client, self._milvus.DataType
        # A cluster keeps the description, Milvus Lite the property.
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
        schema.add_field("id", kinds.VARCHAR, is_primary=True, max_length=MOST_ID_BYTES)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=dim)
        schema.add_field("metadata", kinds.JSON)
        schema.add_field("fields", kinds.JSON)  # the metadata's scalars by type: see the module
        parameters = client.prepare_index_params()
        built = index_options or _BUILT.get(index, {})
        parameters.add_index("vector", index_type=index, metric_type="IP", params=built)
        with self._errors():
            client.create_collection(
                self._collection,
                schema=schema,
                index_params=parameters,
                consistency_level="Strong",
                num_shards=shards,
                properties={_PINNED: description},
            )

    def _read_pinned(self) -> None:
        with self._errors():
            described: Any = self._client.describe_collection(self._collection)
        text = described.get("properties", {}).get(_PINNED) or described.get("description")
        fields = read_pinned(text, self._where)
        self.dim, self.fingerprint, self.kind = int(fields["dim"]), str(fields["fingerprint"]), fields["index"]
        with self._errors():
            self._client.load_collection(self._collection)

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        with self._errors():
            self._client.upsert(self._collection, rows)

    def _candidates(self, queries: np.ndarray, limit: int, expression: str, with_metadata: bool) -> list[list[Item]]:
        """Return up to ``limit`` items for each query, in calls that stay within what one answer may hold."""
        step = max(1, _MOST_RESULTS // limit)
        found: list[list[Item]] = []
        for start in range(0, len(queries), step):
            answer = self._read(
                self._client.search,
                data=list(queries[start : start + step]),
                limit=limit,
                filter=expression,
                search_params=_effort(self.kind, limit),
                output_fields=["id", "vector", *(["metadata"] if with_metadata else [])],
            )
            found += [[_item(hit["entity"]) for hit in hits] for hits in answer]
        return found

    def _first_by_id(self, expression: str, limit: int) -> list[dict[str, Any]]:
        """Return the first items by id that meet an expression. Only Milvus's iterator promises that order.

        It is used for one batch: to go on, it would write the last id into its own filter without escaping it.
        """
        iterator = self._read(
            self._client.query_iterator,
            batch_size=limit,
            filter=expression,
            output_fields=["id", "vector", "metadata"],
        )
        try:
            with self._errors():
                return list(iterator.next())
        finally:
            iterator.close()

    def _query(self, expression: str, output_fields: list[str]) -> Any:
        return self._read(self._client.query, filter=expression, output_fields=output_fields)

    def _read(self, call: Callable[..., Any], **arguments: Any) -> Any:
        """Call with strong consistency; a restarted server must load the collection again first."""
        with self._errors():
            try:
                return call(self._collection, consistency_level="Strong", **arguments)
            except self._milvus.MilvusException as error:
                if "load" not in str(error):
                    raise
                self._client.load_collection(self._collection)
                return call(self._collection, consistency_level="Strong", **arguments)

    def _sync(self) -> None:
        """Flush what Milvus Lite wrote to its file's folder: it does not do so itself."""
        if self._file is None:
            return
        for path in [self._file, *self._file.rglob("*")]:
            try:
                state = path.stat()
                if self._synced.get(path) != (state.st_mtime_ns, state.st_size):
                    sync(path)
                    self._synced[path] = (state.st_mtime_ns, state.st_size)
            except FileNotFoundError:  # merged into another meanwhile
                self._synced.pop(path, None)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._milvus.MilvusException as error:
            raise TophitError(f"Milvus at {self._shown} failed: {_message(error)}") from error


def _item(row: Mapping[str, Any]) -> Item:
    return Item(row["id"], np.asarray(row["vector"], np.float32), row.get("metadata") or {})


def _effort(kind: str, limit: int) -> dict[str, Any]:
    """Return how hard an approximate index looks."""
    efforts = {"HNSW": {"ef": max(128, 2 * limit)}, "IVF_FLAT": {"nprobe": 64}}
    return {"metric_type": "IP", "params": efforts.get(kind, {})}


def _any_of(ids: Sequence[str]) -> str:
    return f"id in [{', '.join(literal(each) for each in ids)}]"


def _parts(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _IDS_IN_A_CALL):
        yield list(ids[start : start + _IDS_IN_A_CALL])


def _message(error: BaseException) -> str:
    return " ".join(str(getattr(error, "message", "") or error).split())


def _best_hits(query: np.ndarray, found: Sequence[Item], k: int) -> tuple[list[Hit], bool]:
    """Return the k best items by exact score, equal ones by id, and whether an equal one may have been cut off."""
    if not found:
        return [], False
    scores = exact_scores(query[None], np.stack([item.vector for item in found]), np.arange(len(found))[None])[0]
    order = sorted(range(len(found)), key=lambda i: (-scores[i], found[i].id))
    hits = [Hit(rank, float(scores[i]), found[i].id, found[i].metadata) for rank, i in enumerate(order[:k], 1)]
    return hits, len(found) >= k and bool(scores[order[k - 1]] <= scores[order[-1]] + 1e-6)


def filterable_fields(metadata: Mapping[str, Any]) -> dict[str, str | float]:
    """Return the scalars of metadata by typed key, and each of several labels; other values can't be filtered by."""
    scalars = {
        _key(name, value): _plain(value) for name, value in metadata.items() if isinstance(value, str | int | float)
    }
    return scalars | {_label_key(label): 1.0 for label in listed_labels(metadata)}


def filter_expression(where: Sequence[Condition]) -> str:
    """Return the expression that holds where every condition does; empty for none."""
    return " and ".join(f"({_expression(condition)})" for condition in where)


def literal(value: str | float) -> str:
    """Return text or a number as Milvus reads it."""
    return f'"{value.translate(_ESCAPES)}"' if isinstance(value, str) else repr(float(value))


def _expression(condition: Condition) -> str:
    if condition.operator == "in":
        return _either([_expression(Condition(condition.field, "eq", value)) for value in condition.value])
    path = f"fields[{literal(_key(condition.field, condition.value))}]"
    compared = f"{path} {_SIGNS[condition.operator]} {literal(_plain(condition.value))}"
    if condition.operator == "ne":
        compared = f"not exists {path} or {compared}"
    if condition.field != LABELS or not isinstance(condition.value, str):
        return compared
    has = f"exists fields[{literal(_label_key(condition.value))}]"
    return f"({compared}) and not {has}" if condition.operator == "ne" else f"{compared} or {has}"


def _label_key(label: str) -> str:
    return f"l:{label}"


def _either(parts: Sequence[str]) -> str:
    """Join expressions by ``or``, nested by halves: a long chain is too deep for Milvus' parser.

    Milvus has ``in`` too, but Milvus Lite knows it for plain fields only.
    """
    if len(parts) <= 2:
        return " or ".join(parts)
    half = len(parts) // 2
    return f"({_either(parts[:half])}) or ({_either(parts[half:])})"


def _key(name: str, value: Any) -> str:
    kind = "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"
    return f"{kind}:{name}"


def _plain(value: Any) -> str | float:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else float(value)
