"""PostgreSQL with pgvector: a table of ids, vectors and JSON metadata.

Search is exact unless the table was made with ``index="hnsw"``. A write is a transaction: when it returns, the server
has flushed it to its log on disk (``fsync`` and ``synchronous_commit``, both on by default) and every search sees it.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tophit.data.item_rows import LABELS
from tophit.errors import TophitError, UsageError
from tophit.registry import register
from tophit.search.backend import Hit, Item
from tophit.search.filters import Condition
from tophit.search.remote import check_name, closed_on_error, import_package, pinned, read_pinned

if TYPE_CHECKING:
    import psycopg

_STARTING_SECONDS = 20  # how long to wait for a server that says it is starting up
_MOST_HNSW_DIMENSIONS = 2000  # of pgvector's HNSW over float32
_EXACT_ROWS = 50_000  # a filtered search of up to this many items compares them all, as the local backend does


@register(
    "backend",
    "pgvector",
    prefixes=("postgres://", "postgresql://", "host=", "dbname="),
    address="--dsn",
    address_like="postgresql://user@host/database",
    named_by="table",
    kinds=("exact", "hnsw"),
    password="PGPASSWORD or ~/.pgpass",
    read_by_itself=("PGPASSWORD",),
    without_credentials={"sends_password": False},
)
class PgvectorBackend:
    """Items in a table of a PostgreSQL database; see :class:`tophit.search.backend.Backend`.

    ``location`` is a connection string such as ``postgresql://user@host/database``; put a password into
    PGPASSWORD or ~/.pgpass. ``table`` names the table.
    """

    def __init__(self, location: str, table: str, sends_password: bool = True) -> None:
        self._psycopg = import_package("psycopg", "pgvector")
        # An empty password keeps libpq from PGPASSWORD. Those in ~/.pgpass are bound to addresses by the file itself.
        self._password = {} if sends_password else {"password": ""}
        self._location, self._table = location, check_name(table, "table")
        self._connection = self._connect()
        self.dim, self.fingerprint, self.kind, self.ef_search = 0, "", "exact", 0

    @classmethod
    def create(
        cls,
        location: str,
        dim: int,
        fingerprint: str,
        *,
        table: str = "tophit",
        index: Literal["exact", "hnsw"] = "exact",
        m: int = 16,
        ef_construction: int = 64,
        ef_search: int = 100,
        sends_password: bool = True,
    ) -> "PgvectorBackend":
        """Create a table. ``index="hnsw"`` is faster and not exact; ``m``, ``ef_construction``, ``ef_search`` tune it.

        The table, its indexes and what is pinned to it appear together or not at all.
        """
        if index not in ("exact", "hnsw"):
            raise UsageError(f"index is 'exact' or 'hnsw', not {index!r}.")
        if index == "hnsw" and dim > _MOST_HNSW_DIMENSIONS:
            raise UsageError(f"pgvector's HNSW takes up to {_MOST_HNSW_DIMENSIONS} dimensions, not {dim}; use 'exact'.")
        backend = cls(location, table, sends_password)
        with closed_on_error(backend):
            backend._make(pinned(dim, fingerprint, index=index, ef_search=ef_search), dim, index, m, ef_construction)
            backend._read_pinned()
        return backend

    @classmethod
    def open(cls, location: str, *, table: str = "tophit", sends_password: bool = True) -> "PgvectorBackend":
        """Open a table that :meth:`create` made; ``sends_password=False`` keeps PGPASSWORD from the server."""
        backend = cls(location, table, sends_password)
        with closed_on_error(backend):
            backend._read_pinned()
        return backend

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Add or replace items in one transaction."""
        texts = [json.dumps(dict(each), ensure_ascii=False) for each in metadata]
        self._run(
            "INSERT INTO {table} SELECT i, v::vector, m::jsonb FROM unnest(%s::text[], %s::text[], %s::text[]) "
            "AS new(i, v, m) ON CONFLICT (id) DO UPDATE SET vector = excluded.vector, metadata = excluded.metadata",
            [list(ids), [_vector_text(vector) for vector in vectors], texts],
        )

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items and return how many there were."""
        return self._run("DELETE FROM {table} WHERE id = ANY(%s)", [list(ids)]).rowcount

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        """Return the item of each id, None where there is none."""
        rows = self._run("SELECT id, vector::text, metadata FROM {table} WHERE id = ANY(%s)", [list(ids)]).fetchall()
        found = {row[0]: _item(row) for row in rows}
        return [found.get(each) for each in ids]

    def search(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = (), with_metadata: bool = True
    ) -> list[list[Hit]]:
        """Return up to k nearest items of each query (Q, dim), among those that meet every condition."""
        condition, values = _where_clause(where)
        metadata = "metadata" if with_metadata else "'{{}}'::jsonb"
        # The graph's index knows the order by a distance, not by a sum: with one, all allowed items are compared.
        distance = "0 + (vector <#> %s::vector)" if self._allows_few(where) else "vector <#> %s::vector"
        statement = (
            f"SELECT id, -(vector <#> %s::vector), {metadata} FROM {{table}}{condition} "
            f"ORDER BY {distance}, id LIMIT %s"
        )
        answers: list[list[Hit]] = []
        for query in np.atleast_2d(queries):
            text = _vector_text(query)
            rows = self._run(statement, [text, *values, text, k]).fetchall()
            answers.append([Hit(rank, float(row[1]), row[0], row[2]) for rank, row in enumerate(rows, 1)])
        return answers

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Return how many items meet every condition."""
        condition, values = _where_clause(where)
        return self._one("SELECT count(*) FROM {table}" + condition, values)

    def _allows_few(self, where: Sequence[Condition]) -> bool:
        """Return whether a filter allows so few items that comparing them all is better than walking the graph."""
        if self.kind != "hnsw" or not where:
            return False
        condition, values = _where_clause(where)
        some = f"SELECT count(*) FROM (SELECT 1 FROM {{table}}{condition} LIMIT %s) AS allowed"
        return self._one(some, [*values, _EXACT_ROWS + 1]) <= _EXACT_ROWS

    def items(self, batch: int = 1024) -> Iterator[list[Item]]:
        """Iterate over all items in batches, ordered by id; each batch is a query of its own."""
        last: str | None = None
        while True:
            beyond = "" if last is None else " WHERE id > %s"
            rows = self._run(
                "SELECT id, vector::text, metadata FROM {table}" + beyond + " ORDER BY id LIMIT %s",
                [*([] if last is None else [last]), batch],
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield [_item(row) for row in rows]

    def compact(self) -> None:
        """Free the space of replaced and deleted items and refresh the planner's statistics."""
        self._run("VACUUM (ANALYZE) {table}")

    def stats(self) -> dict[str, Any]:
        """Return count, dim, kind of index, bytes on disk, versions, and whether the server flushes its log."""
        extension = self._one("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        durable = self._one("SHOW fsync") == "on" and self._one("SHOW synchronous_commit") != "off"
        return {
            "engine": "pgvector",
            "table": self._table,
            "count": self.count(),
            "dim": self.dim,
            "kind": self.kind,
            "bytes": self._one("SELECT pg_total_relation_size(%s::regclass)", [f'"{self._table}"']),
            "version": f"PostgreSQL {self._one('SHOW server_version')}, pgvector {extension}",
            "durable": durable,
        }

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def _where(self) -> str:
        return f"The table {self._table}"

    def _connect(self) -> "psycopg.Connection[Any]":
        """Connect, waiting for a server that is starting up, as it is after a crash."""
        end = time.monotonic() + _STARTING_SECONDS
        while True:
            try:
                connection = self._psycopg.connect(
                    self._location, autocommit=True, connect_timeout=10, **self._password
                )
            except self._psycopg.OperationalError as error:
                if "starting up" not in str(error) or time.monotonic() > end:
                    raise TophitError(f"PostgreSQL can't be reached: {_one_line(error)}") from error
                time.sleep(0.2)
            except self._psycopg.ProgrammingError as error:
                raise UsageError(f"The --dsn is not a PostgreSQL connection string: {_one_line(error)}") from error
            else:
                connection.execute("SET client_min_messages = warning")
                if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
                    connection.execute("SET synchronous_commit = on")
                return connection

    def _make(self, description: str, dim: int, index: str, m: int, ef_construction: int) -> None:
        """Make the table, its indexes and its comment in one transaction."""
        sql = self._psycopg.sql
        with self._errors(), self._connection.transaction():
            if self._exists():
                raise TophitError(f"{self._where} exists already; open it, or choose another name.")
            self._create_extension()
            self._run(
                f'CREATE TABLE {{table}} (id text COLLATE "C" PRIMARY KEY, vector vector({int(dim)}) NOT NULL, '
                "metadata jsonb NOT NULL)"
            )
            self._run("CREATE INDEX ON {table} USING gin (metadata jsonb_path_ops)")
            if index == "hnsw":
                self._run(
                    "CREATE INDEX ON {table} USING hnsw (vector vector_ip_ops) "
                    f"WITH (m = {int(m)}, ef_construction = {int(ef_construction)})"
                )
            comment = sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(self._table), sql.Literal(description))
            self._connection.execute(comment)

    def _create_extension(self) -> None:
        psycopg = self._psycopg
        try:
            self._connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile) as error:
            raise TophitError("The PostgreSQL server has no extension pgvector; install it there first.") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise TophitError(
                "The database has no extension pgvector yet and this user may not add it; "
                "let an administrator run: CREATE EXTENSION vector"
            ) from error

    def _exists(self) -> bool:
        return self._one("SELECT to_regclass(%s)", [f'"{self._table}"']) is not None

    def _read_pinned(self) -> None:
        if not self._exists():
            raise TophitError(
                f"There is no index: the database has no table {self._table}; make one with: tophit index"
            )
        text = self._one("SELECT obj_description(%s::regclass)", [f'"{self._table}"'])
        fields = read_pinned(text, self._where)
        self.dim, self.fingerprint = int(fields["dim"]), str(fields["fingerprint"])
        self.kind, self.ef_search = fields["index"], int(fields["ef_search"])
        self._prepare_session()

    def _prepare_session(self) -> None:
        if self.kind == "hnsw":  # goes on along the graph until enough items meet the filter
            self._connection.execute("SELECT '[1]'::vector")  # loads the library that knows the settings
            self._connection.execute("SET hnsw.iterative_scan = strict_order")
            ef_search = str(max(1, min(1000, self.ef_search)))
            self._connection.execute("SELECT set_config('hnsw.ef_search', %s, false)", [ef_search])

    def _run(self, statement: str, values: Sequence[Any] = ()) -> "psycopg.Cursor[Any]":
        """Execute a statement with {table} in it, on a new connection if the last one was lost."""
        sql = self._psycopg.sql
        with self._errors():
            if self._connection.broken:
                self._connection = self._connect()
                self._prepare_session()
            query = sql.SQL(statement).format(table=sql.Identifier(self._table))
            return self._connection.execute(query, values)

    def _one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        row = self._run(statement, values).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        psycopg = self._psycopg
        try:
            yield
        except psycopg.errors.UntranslatableCharacter as error:
            raise UsageError("PostgreSQL can't store NUL characters; remove them from ids and metadata.") from error
        except psycopg.errors.UndefinedTable as error:
            raise TophitError(f"{self._where} is gone: {_one_line(error)}") from error
        except psycopg.Error as error:
            raise TophitError(f"PostgreSQL failed: {_one_line(error)}") from error


def _where_clause(where: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return the SQL of a filter and its values; equal is equal as JSON: 3 is 3.0, true is not 1."""
    parts: list[str] = []
    values: list[Any] = []
    for condition in where:
        part, more = _condition(condition)
        parts.append(part)
        values += more
    return (" WHERE " + " AND ".join(parts) if parts else ""), values


def _condition(condition: Condition) -> tuple[str, list[Any]]:
    field, operator, value = condition.field, condition.operator, condition.value
    if field == LABELS and operator in (
        "eq",
        "ne",
        "in",
    ):  # of an item with several, a list; else the user's own column
        wanted = [json.dumps({field: [each]}) for each in (value if operator == "in" else [value])]
        wanted += [json.dumps({field: each}) for each in (value if operator == "in" else [value])]
        return f"{'NOT ' if operator == 'ne' else ''}metadata @> ANY(%s::jsonb[])", [wanted]
    if operator == "eq":  # containment of one scalar is equality, and the GIN index answers it
        return "metadata @> %s::jsonb", [json.dumps({field: value})]
    if operator == "ne":
        return "NOT metadata @> %s::jsonb", [json.dumps({field: value})]
    if operator == "in":
        return "metadata @> ANY(%s::jsonb[])", [[json.dumps({field: each}) for each in value]]
    sign = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}[operator]
    if isinstance(value, str):
        return (
            f"(jsonb_typeof(metadata->%s) = 'string' AND (metadata->>%s) COLLATE \"C\" {sign} %s)",
            [field, field, value],
        )
    return (
        f"(jsonb_typeof(metadata->%s) = 'number' AND (metadata->%s) {sign} %s::jsonb)",
        [field, field, json.dumps(value)],
    )


def _vector_text(vector: np.ndarray) -> str:
    """Return a vector as pgvector reads it; float32 survives the way there and back."""
    return "[" + ",".join(map(repr, np.asarray(vector, np.float32).tolist())) + "]"


def _item(row: tuple[str, str, dict[str, Any]]) -> Item:
    return Item(row[0], np.asarray(json.loads(row[1]), np.float32), row[2])


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
