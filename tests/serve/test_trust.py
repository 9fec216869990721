"""What a week of attacks broke: work that goes on for nobody, the images' root, a full disk, answers without JSON."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.serve.served import ADMIN, READ, Place, client_of, encoded

from conftest import draw_picture
from tophit.search.catalogue import open_catalogue
from tophit.search.versions import read_versions, write_versions
from tophit.serve.config import Limits
from tophit.serve.rates import Rates
from tophit.serve.security import make_access

FIRST = "class 2/3.png"
MANY = 20_000


def refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"], answer.text


@pytest.fixture(scope="module")
def same(served: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An index that holds one vector very often, so that a search by many vectors takes a minute."""
    folder = tmp_path_factory.mktemp("same") / "index"
    shutil.copytree(served.index, folder)
    with open_catalogue(folder, writable=True) as catalogue:
        metadata = [{"label": "same", "number": n} for n in range(MANY)]
        catalogue.index.upsert([f"{n}" for n in range(MANY)], np.ones((MANY, 16)), metadata)
    return Place(folder, served.other, served.images)


ENDLESS = {"vectors": [[1.0] * 16] * 1024, "k": 40}


# Filters


def test_a_filter_with_many_values_is_refused_and_one_with_a_thousand_is_answered(same: Place) -> None:
    with client_of(same) as client:
        where = {"number": list(range(30_000))}
        refused(client.post("/search", json={"ids": ["1"], "where": where}), 422, "30,000 values; at most 1,000")
        found = client.post("/search", json={"ids": ["1"], "k": 5, "where": {"number": [*range(995), "7", True, 9.0]}})
        assert [hit["id"] for hit in found.json()["queries"][0]["results"]] == ["0", "10", "100", "101", "102"]


def test_many_values_are_one_query(same: Place) -> None:
    with open_catalogue(same.index) as catalogue:
        asked: list[str] = []
        catalogue.index.backend._state.database.connection.set_trace_callback(asked.append)
        assert catalogue.index.count({"number": list(range(5000))}) == 5000
        assert sum("fields" in each for each in asked) == 1


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/about"])
def test_operators_are_answered_while_the_index_is_busy(served: Place, path: str) -> None:
    with client_of(served, limits=Limits(queue=1)) as client:
        backend = client.library.first.index.backend  # type: ignore[attr-defined]
        held, released = threading.Event(), threading.Event()

        def hold() -> None:
            with backend._turn():
                held.set()
                released.wait(60)

        threading.Thread(target=hold).start()
        assert held.wait(60)
        answers: list[int] = []
        asks = threading.Thread(target=lambda: answers.append(client.get(path).status_code))
        asks.start()
        asks.join(20)
        meanwhile = list(answers)
        released.set()
        asks.join()
        assert meanwhile == [200]


# Work that nobody waits for


def test_a_search_that_took_too_long_is_given_up(same: Place) -> None:
    with client_of(same, limits=Limits(request_seconds=1)) as client:
        refused(client.post("/search", json=ENDLESS), 503, "longer than 1 seconds")
        tries = (client.post("/search", json={"ids": [FIRST]}).status_code for _ in range(60))
        assert 200 in tries  # the endless one no longer holds the index; a busy machine may need some turns of a second


def test_a_stop_waits_for_no_search(same: Place, serve) -> None:
    server = serve(same.index, "--limit", "drain_seconds=1", "--limit", "notice_seconds=0.1")
    answers: list[httpx.Response] = []
    asks = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{server.url}/search", json=ENDLESS, timeout=100))
    )
    asks.start()
    while "tophit_connections 2" not in httpx.get(f"{server.url}/metrics").text:
        time.sleep(0.05)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(15) == 0
    asks.join()
    refused(answers[0], 503, "stopping")


def test_reranking_is_refused_before_it_starts_if_it_costs_too_much(client: TestClient) -> None:
    query = {"ids": [FIRST, "class 1/1.png"], "rerank": ["k-reciprocal:candidates=1000"]}
    assert client.post("/search", json=query).status_code == 200
    query["ids"] = [f"class {kind}/{number}.png" for kind in range(8) for number in range(6)]
    refused(client.post("/search", json=query), 422, "compares 48,000,000 pairs; at most 10,000,000")


def test_pixels_are_counted_over_all_files(served: Place) -> None:
    with client_of(served, limits=Limits(request_pixels=150_000)) as client:
        files = [("files", encoded(draw_picture(1, n, side=256))) for n in range(3)]
        assert client.post("/search", files=files[:2]).status_code == 200
        refused(client.post("/search", files=files), 422, "3 files of 196,608 pixels in all; at most 150,000")
        refused(client.post("/search", files=[files[0], ("files", b"nothing")]), 422, "file 2: not a JPEG")


def test_a_killed_decoder_is_replaced_and_the_picture_not_blamed(served: Place) -> None:
    with client_of(served) as client:
        pool = client.library.pool  # type: ignore[attr-defined]
        data = encoded(draw_picture(1, 1))
        for _ in range(3):
            assert client.post("/search", files={"files": data}).status_code == 200
            (worker,) = pool._idle
            os.kill(worker.pid, signal.SIGKILL)


# The images' root


def test_an_upload_and_a_restart_change_no_id(served_copy: Place, tokens: Path) -> None:
    access = make_access("127.0.0.1", tokens)
    headers = {"authorization": f"Bearer {ADMIN}"}
    picture = {"files": encoded(draw_picture(1, 1))}
    assert read_versions(served_copy.index).images == str(served_copy.images)
    with client_of(served_copy, access, writable=True) as client:
        new = {"items": json.dumps({"items": [{"id": "new"}]})}
        assert client.post("/items", files=picture, data=new, headers=headers).status_code == 200
    for images in (str(served_copy.images), None):  # an older catalogue does not name it
        write_versions(served_copy.index, replace(read_versions(served_copy.index), images=images))
        with client_of(served_copy, access, writable=True) as client:
            shown = client.get("/items", params={"id": [FIRST, "new"]}, headers=headers)
            assert [item["id"] for item in shown.json()["items"]] == [FIRST, "new"]
            assert client.get(shown.json()["items"][1]["thumbnail"], headers=headers).status_code == 200
            everything = client.post("/search", json={"ids": ["new"], "k": 48}, headers=headers).text
            assert str(served_copy.images.parent) not in everything


def test_a_path_outside_the_root_is_in_no_answer(served_copy: Place, tmp_path: Path) -> None:
    outside = str(tmp_path / "secret" / "a.png")
    metadata = [{"path": outside, "label": "x", "feature_file": str(tmp_path / "secret.npz")}]
    with open_catalogue(served_copy.index, writable=True) as catalogue:
        catalogue.index.upsert([outside], np.eye(16)[:1], metadata)
    with client_of(served_copy) as client:
        found = client.post("/search", json={"vectors": [np.eye(16)[0].tolist()], "k": 48})
        assert str(tmp_path) not in found.text
        name = found.json()["queries"][0]["results"][0]["id"]
        again = client.post("/search", json={"ids": [name], "k": 3})
        assert again.status_code == 200  # the name that was given can be used
        assert str(tmp_path) not in again.text
        assert client.get("/items", params={"id": name}).json()["items"][0]["label"] == "x"


def test_what_can_be_written_can_be_read(admin: TestClient) -> None:
    for name in ("x" * 990, "y" * 1024, "é" * 512, "z" * 300 + "/" + "z" * 700, "/an/absolute/id"):
        item = {"id": name, "vector": [1.0] * 16}
        assert admin.post("/items", json={"items": [item]}).json()["written"] == 1, name[:20]
        assert admin.get("/items", params={"id": name}).json()["items"][0]["id"] == name
        assert admin.post("/search", json={"ids": [name]}).status_code == 200
        assert admin.request("DELETE", "/items", json={"ids": [name]}).json()["deleted"] == 1
    refused(admin.post("/items", json={"items": [{"id": "é" * 513, "vector": [1.0] * 16}]}), 422, "1024 bytes")


# A full disk


class _Full:
    """A connection whose disk is full while ``full`` is set."""

    full = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, text: str, *more: object) -> sqlite3.Cursor:
        if text == "COMMIT" and self.full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
            raise error
        return self._connection.execute(text, *more)


def test_writes_go_on_by_themselves_once_a_full_disk_has_room(admin: TestClient, monkeypatch) -> None:
    model = admin.library.first  # type: ignore[attr-defined]
    database = model.index.backend._state.database
    database.connection = full = _Full(database.connection)
    room = threading.Event()
    monkeypatch.setattr("tophit.serve.served_model._can_write", lambda folder: room.is_set())
    item = {"items": [{"id": "new", "vector": [1.0] * 16}]}
    full.full = True
    refused(admin.post("/items", json=item), 507, "The disk is full, so nothing was written")
    refused(admin.get("/ready"), 503, "Writes fail: the disk is full. Searches are answered.")
    assert admin.post("/search", json={"ids": [FIRST]}).status_code == 200
    assert admin.get("/items", params={"id": "new"}).status_code == 404
    full.full = False
    room.set()
    deadline = time.monotonic() + 30
    while admin.get("/ready").status_code != 200:  # without any further write
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert admin.post("/items", json=item).status_code == 200
    assert admin.get("/items", params={"id": "new"}).status_code == 200


def test_a_picture_that_finds_no_room_is_answered_in_a_sentence(admin: TestClient, monkeypatch) -> None:
    import errno

    def no_room(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tophit.serve.item_changes.store_picture", no_room)
    new = {"items": json.dumps({"items": [{"id": "new"}]})}
    answer = admin.post("/items", files={"files": encoded(draw_picture(1, 1))}, data=new)
    refused(answer, 507, "The disk is full, so nothing was written")
    refused(admin.get("/ready"), 503, "the disk is full")


# Answers are JSON


@pytest.mark.parametrize(
    "where",
    [{"price": 2**63}, {"price": [1, -(2**63) - 1]}, {"price": {"lt": 10**40}}, {"price": None}, {"price": {"eq": {}}}],
)
def test_a_filter_is_checked_at_the_door(client: TestClient, where: dict) -> None:
    refused(client.post("/search", json={"ids": [FIRST], "where": where}), 422, "filter.price")


def test_a_box_that_is_none_means_the_whole_picture(served_copy: Place) -> None:
    path = str(served_copy.images / FIRST)
    with open_catalogue(served_copy.index, writable=True) as catalogue:
        for number, box in enumerate((7, "x", [1, 2], [float(10**300)] * 4, [9, 9, 3, 3])):
            catalogue.index.upsert([str(number)], np.eye(16)[:1], [{"path": path, "box": box}])
    with client_of(served_copy) as client:
        for item in client.get("/items", params={"id": ["0", "1", "2", "3", "4"]}).json()["items"]:
            assert client.get(item["thumbnail"]).headers["content-type"] == "image/webp"
            query = {"ids": [item["id"]], "box": [0.1, 0.1, 0.5, 0.5]}
            assert client.post("/search", json=query).status_code == 200


def test_an_unexpected_error_is_json_too(served: Place) -> None:
    with client_of(served) as client:

        def broken(*arguments: object) -> None:
            raise ZeroDivisionError

        client.library.first.index.backend.get = broken  # type: ignore[attr-defined]
        refused(client.get("/items", params={"id": "x"}), 500, "the server's log says what")


# Who


def test_changes_are_noted_with_who_and_when(served_copy: Place, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"admin {ADMIN} alice\n")
    log = tmp_path / "audit.jsonl"
    with client_of(served_copy, make_access("127.0.0.1", tokens), writable=True, audit_log=log) as client:
        client.headers["authorization"] = f"Bearer {ADMIN}"
        client.post("/items", json={"items": [{"id": "new", "vector": [1.0] * 16}]})
        client.request("DELETE", "/items", json={"ids": ["new", FIRST]})
        client.post("/items", json={"items": [{"id": "é" * 513, "vector": [1.0] * 16}]})
        client.post("/search", json={"ids": ["class 1/1.png"]})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["who"], line["what"], line["outcome"].split(":")[0]) for line in lines] == [
        ("alice", "upsert", "done"),
        ("alice", "delete", "done"),
        ("alice", "upsert", "failed"),
    ]
    assert lines[1]["ids"] == ["new", FIRST]
    assert lines[0]["at"] <= lines[1]["at"]
    assert log.stat().st_mode & 0o077 == 0
    assert ADMIN not in log.read_text()


def test_a_token_has_a_rate(served: Place, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"read {READ} slow 0.5/s\nadmin {ADMIN}\n")
    with client_of(served, make_access("127.0.0.1", tokens)) as client:
        slow, other = ({"authorization": f"Bearer {token}"} for token in (READ, ADMIN))
        assert client.get("/about", headers=slow).status_code == 200
        answer = client.get("/about", headers=slow)
        refused(answer, 429, "More than 0.5 requests a second")
        assert int(answer.headers["retry-after"]) >= 1
        assert client.get("/about", headers=other).status_code == 200
        assert client.get("/health", headers=slow).status_code == 200


def test_a_rate_lets_short_bursts_pass() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    assert [_passes(rates) for _ in range(21)] == [True] * 20 + [False]
    now[0] += 0.5
    assert [_passes(rates) for _ in range(6)] == [True] * 5 + [False]


def _passes(rates: Rates) -> bool:
    from tophit.serve.problems import Problem

    try:
        rates.take("someone", 10)
    except Problem:
        return False
    return True


def test_who_may_not_read_learns_not_what_is_served(served: Place, tokens: Path) -> None:
    with client_of(served, make_access("127.0.0.1", tokens)) as client:
        for path in ("/health", "/ready", "/about", "/", "/nothing"):
            answer = client.get(path)
            assert "x-tophit-model" not in answer.headers, path
            assert "x-tophit-index" not in answer.headers, path
        assert client.get("/ready", headers={"authorization": f"Bearer {READ}"}).headers["x-tophit-model"]
    with client_of(served) as client:
        assert "x-tophit-model" not in client.get("/about", headers={"host": "evil.example"}).headers


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB, where this user may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"a small disk can't be made here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.slow
def test_a_disk_that_is_really_full(served: Place, small_disk: Path, serve, tokens: Path) -> None:
    shutil.copytree(served.index, small_disk / "index")
    server = serve(small_disk / "index", "--token-file", tokens)
    kept: dict[str, int] = {}
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {ADMIN}"}, timeout=60) as client:
        for turn in range(10):
            refusals = []
            for number in range(3000):  # until the disk is full, by writes of both kinds
                name = f"{turn} {number}"
                if number % 10:
                    body = {"items": [{"id": name, "vector": [1.0] * 16, "metadata": {"text": "x" * 30_000}}]}
                    answer = client.post("/items", json=body)
                else:
                    new = {"items": json.dumps({"items": [{"id": name}]})}
                    answer = client.post("/items", files={"files": encoded(draw_picture(1, 1, 600))}, data=new)
                if answer.status_code == 200:
                    kept[name] = turn
                    continue
                refused(answer, 507, "The disk is full, so nothing was written")
                refusals.append(name)
                if len(refusals) == 3:
                    break
            assert len(refusals) == 3
            refused(client.get("/ready"), 503, "the disk is full")
            assert client.post("/search", json={"ids": [FIRST]}).status_code == 200
            subprocess.run(["mount", "-o", f"remount,size={14 + 2 * turn}m", small_disk], check=True)
            deadline = time.monotonic() + 30
            while client.get("/ready").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert server.stop() == 0
    with open_catalogue(small_disk / "index") as catalogue:
        found = {item.id for item in catalogue.index.items()}
        assert set(kept) <= found
        assert not {name for name in found if name not in kept and name[0].isdecimal()}
        assert catalogue.index.verify() == []
