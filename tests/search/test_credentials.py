"""Passwords and tokens go only to addresses that the user named, and no spelling of them is written to disk."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.search.catalogue import open_catalogue
from tophit.search.milvus import MilvusBackend
from tophit.search.versions import IndexOptions, add_version, switch_version


class Listener:
    """A server that speaks just enough of PostgreSQL's protocol to ask for a password, and keeps what it was sent."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.received = b""
        self.address = f"postgresql://me@127.0.0.1:{self.socket.getsockname()[1]}/x?sslmode=disable&gssencmode=disable"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.received += connection.recv(4096)
                connection.sendall(b"R" + struct.pack("!ii", 8, 3))  # give me the password in clear
                self.received += connection.recv(4096)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.socket.close()


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOPHIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PGPASSWORD", "the secret")
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    monkeypatch.setenv("TOPHIT_MILVUS_TOKEN", "the token")
    return tmp_path / "config"


def given_catalogue(folder: Path, backend: str, address: str) -> Path:
    """Make a catalogue as someone else may hand it over: a file that names an address of their choice."""
    local = add_version(folder, build_embedder("features/6", dim=4))
    switch_version(folder, local)
    content = json.loads((folder / "catalogue.json").read_text())
    content.pop("sha256", None)
    content["versions"][local] |= {"engine": backend, "location": address, "options": {}}
    (folder / "catalogue.json").write_text(json.dumps(content))
    return folder


def test_the_password_is_not_sent_to_an_address_that_only_the_file_names(listener: Listener, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    folder = given_catalogue(tmp_path / "index", "pgvector", listener.address)
    with pytest.raises(TophitError, match=r"PGPASSWORD was not sent: .* TOPHIT_CREDENTIALS_FOR"):
        open_catalogue(folder)
    with pytest.raises(TophitError):
        add_version(folder, build_embedder("features/6", dim=3))  # a version like the active one
    assert b"me" in listener.received
    assert b"the secret" not in listener.received


def test_the_password_is_sent_to_an_address_that_the_user_names(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    folder = given_catalogue(tmp_path / "index", "pgvector", listener.address)
    monkeypatch.setenv("TOPHIT_CREDENTIALS_FOR", f"postgresql://other {listener.address}")
    with pytest.raises(TophitError):
        open_catalogue(folder)
    assert b"the secret" in listener.received


def test_a_token_is_sent_where_the_user_named_the_address_in_an_earlier_command(
    tmp_path: Path, own_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def open_there(location: str, **options: Any) -> Any:
        seen.append({"location": location, **options})
        raise TophitError("nothing there")

    class Made:
        def close(self) -> None: ...

    def create(location: str, *rest: Any, **options: Any) -> Any:
        seen.append({"location": location, **options})
        return Made()

    monkeypatch.setattr(MilvusBackend, "open", open_there)
    monkeypatch.setattr(MilvusBackend, "create", create)
    embedder = build_embedder("features/6", dim=4)
    mine, others = "http://mine:19530", "http://others:19530"
    switch_version(tmp_path / "mine", add_version(tmp_path / "mine", embedder, IndexOptions("milvus", mine)))
    for folder in (tmp_path / "mine", given_catalogue(tmp_path / "given", "milvus", others)):
        with pytest.raises(TophitError, match="nothing there"):
            open_catalogue(folder)
    assert [(each["location"], each.get("token")) for each in seen] == [
        (mine, "the token"),
        (mine, "the token"),
        (others, None),
    ]
    kept = (own_settings / "addresses.json").read_text()
    assert mine in kept
    assert "the token" not in kept


@pytest.mark.parametrize(
    ("backend", "address"),
    [
        ("pgvector", "host=h password = x"),
        ("pgvector", "host=h PASSWORD=x"),
        ("pgvector", "postgresql://me@host/db?passwor%64=x"),
        ("pgvector", "postgresql://me@host/db?passwor%2564=x"),
        ("pgvector", "postgresql://me@host/db?sslpassword=x"),
        ("pgvector", "postgresql://me%3Ax@host/db"),
        ("pgvector", "host=h password\t=\n'x'"),
        ("milvus", "https://host:19530/?token=x"),
        ("milvus", "https://host:19530/?api_key=x"),
        ("milvus", "https://me%3ax@host:19530"),
    ],
)
def test_no_spelling_of_a_password_is_written_down(backend: str, address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Leave the password out of the address"):
        add_version(tmp_path / "i", build_embedder("features/6", dim=4), IndexOptions(backend, address))
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("address", ["postgresql://me@host:5432/db", "host=h dbname=d user=me passfile=/home/me/p"])
def test_addresses_without_a_password_are_taken(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(
        "tophit.search.pgvector.PgvectorBackend._connect", lambda self: (_ for _ in ()).throw(TophitError("reached"))
    )
    with pytest.raises(TophitError, match="reached"):
        add_version(tmp_path / "i", build_embedder("features/6", dim=4), IndexOptions("pgvector", address))
