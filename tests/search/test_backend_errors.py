"""What goes wrong between here and a server is said in one sentence."""

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import psycopg
import pytest
from tests.search.servers import MilvusServer, PostgresServer

from tophit.errors import TophitError, UsageError
from tophit.search import Index
from tophit.search.filters import parse_filter
from tophit.search.milvus import filter_expression, filterable_fields


def test_an_address_where_nothing_answers() -> None:
    with pytest.raises(TophitError, match=r"Milvus can't be reached at http://127.0.0.1:9"):
        Index.open("http://me:secret@127.0.0.1:9", backend="milvus")
    with pytest.raises(TophitError, match=r"PostgreSQL can't be reached") as caught:
        Index.open("postgresql://me:secret@127.0.0.1:9/db", backend="pgvector")
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match=r"not a PostgreSQL connection string"):
        Index.open("rubbish", backend="pgvector")
    with pytest.raises(UsageError, match=r"an address such as .* or a file ending in .db"):
        Index.open("rubbish", backend="milvus")


@pytest.mark.parametrize(("backend", "package"), [("milvus", "pymilvus"), ("pgvector", "psycopg")])
def test_a_missing_package_is_named(backend: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TophitError, match=rf"needs the package {package}.*pip install 'tophit\[{backend}\]'"):
        Index.open("http://localhost:1" if backend == "milvus" else "postgresql:///x", backend=backend)


def test_a_table_of_somebody_else_is_left_alone(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.address, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS theirs (id text)")
    with pytest.raises(TophitError, match=r"was not made by Tophit"):
        Index.open(postgres_server.address, backend="pgvector", table="theirs")
    with pytest.raises(TophitError, match=r"exists already"):
        Index.create(postgres_server.address, 3, backend="pgvector", table="theirs")
    with pytest.raises(UsageError, match=r"letters, digits and _"):
        Index.create(postgres_server.address, 3, backend="pgvector", table="x; DROP TABLE theirs")


def test_a_database_without_the_extension(postgres_server: PostgresServer) -> None:
    """A user who may not add the extension is told who can."""
    with psycopg.connect(postgres_server.address, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS bare")
        connection.execute("CREATE DATABASE bare")
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    with psycopg.connect(postgres_server.server.get_uri("bare"), autocommit=True) as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO guest")
    address = postgres_server.server.get_uri("bare").replace("//postgres:", "//guest:")
    with pytest.raises(TophitError, match=r"let an administrator run: CREATE EXTENSION vector"):
        Index.create(address, 3, backend="pgvector")


def test_a_rare_filter_on_hnsw_of_pgvector_is_exact(postgres_server: PostgresServer) -> None:
    random = np.random.default_rng(0)
    groups = random.integers(0, 100, 5000)
    vectors = random.normal(size=(100, 16))[groups] + 0.2 * random.normal(size=(5000, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with Index.create(postgres_server.address, 16, backend="pgvector", table="rare", index="hnsw") as index:
        index.upsert([str(i) for i in range(5000)], vectors, [{"part": i % 100} for i in range(5000)])
        index.compact()
        # As with a larger table: the planner takes the graph where it may, and a walk along it ends early.
        for setting in ("hnsw.max_scan_tuples = 200", "enable_bitmapscan = off", "enable_seqscan = off"):
            cast("Any", index.backend)._connection.execute(f"SET {setting}")
        chosen = np.arange(7, 5000, 100)  # of other groups than the query's, mostly
        nearest = chosen[np.argsort(-(vectors[:40] @ vectors[chosen].T), axis=1)[:, :10]]
        found = index.search(vectors[:40], 10, {"part": 7})
        assert [[int(hit.id) for hit in hits] for hits in found] == nearest.tolist()


def test_hnsw_of_pgvector_keeps_recall_under_filters(postgres_server: PostgresServer) -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(4000, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with Index.create(postgres_server.address, 16, backend="pgvector", table="graph", index="hnsw") as index:
        index.upsert([str(i) for i in range(4000)], vectors, [{"part": i % 20} for i in range(4000)])
        index.compact()
        queries = vectors[:40] + 0.1 * random.normal(size=(40, 16))
        for where, chosen in ((None, np.arange(4000)), ({"part": 3}, np.arange(3, 4000, 20))):
            nearest = chosen[np.argsort(-(queries @ vectors[chosen].T), axis=1)[:, :10]]
            found = index.search(queries, 10, where)
            shared = [len({hit.id for hit in h} & {str(i) for i in n}) for h, n in zip(found, nearest, strict=True)]
            assert np.mean(shared) / 10 >= 0.95
        assert index.stats()["kind"] == "hnsw"
    with pytest.raises(UsageError, match=r"up to 2000 dimensions"):
        Index.create(postgres_server.address, 2048, backend="pgvector", table="wide", index="hnsw")


def test_hnsw_of_milvus_keeps_recall(milvus_server: MilvusServer) -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(3000, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with Index.create(milvus_server.address, 16, collection="graph", index="HNSW") as index:
        index.upsert([str(i) for i in range(3000)], vectors)
        index.compact()
        found = index.search(vectors[:40], 10)
        nearest = np.argsort(-(vectors[:40] @ vectors.T), axis=1)[:, :10]
        shared = [len({hit.id for hit in h} & {str(i) for i in n}) for h, n in zip(found, nearest, strict=True)]
        assert np.mean(shared) / 10 >= 0.95
        assert index.stats()["kind"] == "HNSW"


def test_milvus_lite_in_a_file(tmp_path: Path) -> None:
    with Index.create(tmp_path / "my.db", 3) as index:  # the name tells the backend
        index.upsert(["a", "b"], [[1, 0, 0], [0, 1, 0]], [{"n": 1}, {"n": 2}])
        assert index.stats()["bytes"] > 0
    with Index.open(tmp_path / "my.db") as index:
        assert index.search([1, 0.1, 0], 1, {"n": {"gt": 1}})[0][0].id == "b"


def test_milvus_filters_ask_only_for_values_of_one_type() -> None:
    stored = filterable_fields({"a": 1, "b": "x", "c": True, "d": None, "e": [1]})
    assert stored == {"n:a": 1.0, "s:b": "x", "b:c": "true"}
    assert filter_expression(parse_filter({"a": {"lt": 2}, "b": ["x", 1]})) == (
        '(fields["n:a"] < 2.0) and (fields["s:b"] == "x" or fields["n:b"] == 1.0)'
    )
    assert filter_expression(parse_filter({'q"': {"ne": "a\\b"}})) == (
        '(not exists fields["s:q\\""] or fields["s:q\\""] != "a\\\\b")'
    )
