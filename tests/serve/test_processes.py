"""Several processes behind one port: each of them answers, one writes, and they are seen as one server."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import httpx2 as httpx
import pytest
from tests.serve.served import ADMIN, Place, Server, encoded

from conftest import draw_picture

pytestmark = pytest.mark.slow  # three processes take long to start
HEADERS = {"authorization": f"Bearer {ADMIN}"}
FIRST = "class 2/3.png"


@pytest.fixture(scope="module")
def server(served: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("processes")
    shutil.copytree(served.index, folder / "index")
    (folder / "tokens").write_text(f"admin {ADMIN} alice\n")
    made = Server(folder / "index", "--token-file", folder / "tokens", "--workers", 3)
    made.index = folder / "index"  # type: ignore[attr-defined]
    wait_for(lambda: len(readers(made)) == 2 and seen_by_all(made, FIRST))
    yield made
    made.stop()


def readers(server: Server) -> list[int]:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return [int(each) for each in children if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def seen_by_all(server: Server, *ids: str) -> bool:
    """Whether many new connections, which go to different processes, all show some items."""
    address = f"/items?{urlencode([('id', each) for each in ids])}"
    for _ in range(20):
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
            connection.request("GET", address, headers=HEADERS)
            if connection.getresponse().status != 200:
                return False
    return True


def test_what_one_writes_the_others_show_and_all_is_noted_once(server: Server) -> None:
    for number in range(12):  # each on a new connection, so that every process gets some
        item = {"items": [{"id": f"new {number}", "vector": [1.0] * 16}]}
        answer = httpx.post(f"{server.url}/items", json=item, headers=HEADERS, timeout=60)
        assert (answer.status_code, answer.json()["written"]) == (200, 1), answer.text
    data = {"items": json.dumps({"items": [{"id": "picture"}]})}
    for _ in range(6):
        answer = httpx.post(
            f"{server.url}/items", files={"files": encoded(draw_picture(1, 1))}, data=data, headers=HEADERS, timeout=60
        )
        assert answer.status_code == 200, answer.text
    wrong = httpx.post(f"{server.url}/items", json=item, headers={"authorization": "Bearer wrong"}, timeout=60)
    assert wrong.status_code == 401
    wait_for(lambda: seen_by_all(server, "picture", *(f"new {number}" for number in range(12))))
    log = (server.index / "serve" / "audit.jsonl").read_text().splitlines()  # type: ignore[attr-defined]
    assert [json.loads(line)["who"] for line in log] == ["alice"] * 18
    assert {json.loads(line)["client"] for line in log} == {"127.0.0.1"}


def test_an_upload_is_known_to_all(server: Server) -> None:
    sent = httpx.post(
        f"{server.url}/search", files={"files": encoded(draw_picture(1, 1))}, headers=HEADERS, timeout=60
    ).json()["queries"][0]
    for _ in range(12):
        again = httpx.post(
            f"{server.url}/search", json={"uploads": [sent["query"]["upload"]]}, headers=HEADERS, timeout=60
        )
        assert [hit["id"] for hit in again.json()["queries"][0]["results"]] == [hit["id"] for hit in sent["results"]]
        assert httpx.get(f"{server.url}{sent['query']['thumbnail']}", headers=HEADERS).status_code == 200
    assert httpx.get(f"{server.url}/uploads/..%2f0", headers=HEADERS).status_code == 404


def test_the_counts_are_those_of_all_and_never_go_back(server: Server) -> None:
    def searches() -> float:
        text = httpx.get(f"{server.url}/metrics", headers=HEADERS).text
        found = re.search(r'tophit_requests_total\{method="POST",route="/search",status="200"\} (\S+)', text)
        return float(found.group(1)) if found else 0

    before = searches()
    for _ in range(20):
        httpx.post(f"{server.url}/search", json={"ids": [FIRST]}, headers=HEADERS)
    seen = [before]
    wait_for(lambda: seen.append(searches()) or seen[-1] >= 20)
    assert seen == sorted(seen)


def test_a_reader_that_dies_is_started_again_and_all_stop_together(server: Server) -> None:
    before = readers(server)
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: len(readers(server)) == 2 and before[0] not in readers(server))
    now = readers(server)
    assert server.stop() == 0
    wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in now))
