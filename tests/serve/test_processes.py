"""Several processes behind one port: each of them answers, one writes, and they are seen as one server."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx2 as httpx
import pytest
from tests.serve.served import ADMIN, READ, Place, Server, encoded

from conftest import draw_picture

pytestmark = pytest.mark.slow  # its processes take long to start
FIRST = "class 2/3.png"
SLOW = "a-token-with-a-rate-of-more-than-32-bytes"
WRITER, READER = 0, 1


class Line:
    """A connection that is kept, so that one process answers all of its requests."""

    def __init__(self, server: Server) -> None:
        self._connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.process = self.ask("GET", "/about")[1]["process"]

    def ask(self, method: str, path: str, body: Any = None, token: str = ADMIN, **headers: str) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json", **headers}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if answer.headers["content-type"] == "application/json" else content

    def shows(self, *ids: str) -> bool:
        return self.ask("GET", f"/items?{urlencode([('id', each) for each in ids])}")[0] == 200

    def close(self) -> None:
        self._connection.close()


class Several(Server):
    """A server of two processes."""

    def __init__(self, folder: Path, index: Path) -> None:
        self.index = folder / "index"
        shutil.copytree(index, self.index)
        (folder / "tokens").write_text(f"admin {ADMIN} alice\nread {READ}\nread {SLOW} slow 0.001/s\n")
        super().__init__(self.index, "--token-file", folder / "tokens", "--workers", 2)

    def line(self, process: int) -> Line:
        """Return a connection to a process; which one takes a new connection is chance, and it may be starting."""
        found: list[Line] = []

        def is_there() -> bool:
            found.append(Line(self))
            if found[-1].process != process:
                found.pop().close()
            return bool(found)

        wait_for(is_there)
        return found[0]

    def processes(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in children if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]

    def process_of(self, number: int) -> int:
        """Return the process of a number: the one that writes has the lock of the index open."""
        locks = {path.resolve() for path in self.index.rglob("*lock*")}
        writers = [each for each in self.processes() if locks & set(_open_files(each))]
        assert len(writers) == 1
        return writers[0] if number == WRITER else next(each for each in self.processes() if each not in writers)


def _open_files(process: int) -> list[Path]:
    return [Path(os.readlink(path)) for path in Path(f"/proc/{process}/fd").iterdir() if path.is_symlink()]


@pytest.fixture(scope="module")
def server(served: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    made = Several(tmp_path_factory.mktemp("processes"), served.index)
    yield made
    made.stop()


@pytest.fixture
def lines(server: Several) -> Iterator[list[Line]]:
    """A connection to each process."""
    made = [server.line(WRITER), server.line(READER)]
    yield made
    for each in made:
        each.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def new_item(name: str) -> dict[str, Any]:
    return {"items": [{"id": name, "vector": [1.0] * 16}]}


def test_what_any_process_takes_all_show_and_it_is_noted_once(server: Several, lines: list[Line]) -> None:
    for by, other in ((WRITER, READER), (READER, WRITER)):
        for number in range(5):
            name = f"by {by} {number}"
            status, answer = lines[by].ask("POST", "/items", new_item(name))
            assert (status, answer.get("written")) == (200, 1), answer
            assert lines[by].shows(name)  # at once
            wait_for(lambda name=name, other=other: lines[other].shows(name))
    assert lines[READER].ask("DELETE", "/items", {"ids": ["by 0 0"]})[1]["deleted"] == 1
    assert not lines[READER].shows("by 0 0")
    wait_for(lambda: not lines[WRITER].shows("by 0 0"))
    assert lines[READER].ask("POST", "/items", new_item("x"), token=READ)[0] == 403
    log = [json.loads(line) for line in (server.index / "serve" / "audit.jsonl").read_text().splitlines()]
    assert [line["who"] for line in log] == ["alice"] * 11
    assert {line["client"] for line in log} == {"127.0.0.1"}


def test_pictures_that_one_process_takes_the_other_shows(server: Several, lines: list[Line]) -> None:
    data = {"items": json.dumps({"items": [{"id": "picture"}]})}
    files, headers = {"files": encoded(draw_picture(1, 1))}, {"authorization": f"Bearer {ADMIN}"}
    assert httpx.post(f"{server.url}/items", files=files, data=data, headers=headers, timeout=60).status_code == 200
    wait_for(lambda: all(line.shows("picture") for line in lines))
    sent = httpx.post(f"{server.url}/search", files=files, headers=headers, timeout=60).json()["queries"][0]
    for line in lines:
        status, again = line.ask("POST", "/search", {"uploads": [sent["query"]["upload"]]})
        assert status == 200
        assert [hit["id"] for hit in again["queries"][0]["results"]] == [hit["id"] for hit in sent["results"]]
        assert line.ask("GET", sent["query"]["thumbnail"])[1][:4] == b"RIFF"
        assert line.ask("GET", "/uploads/..%2f0")[0] == 404


def test_names_of_pictures_sessions_and_maps_are_the_same(lines: list[Line]) -> None:
    for one, other in (lines, lines[::-1]):
        item = one.ask("GET", f"/items?id={quote(FIRST)}")[1]["items"][0]
        assert other.ask("GET", item["thumbnail"])[1][:4] == b"RIFF"
    for line in lines:
        line._connection.request("POST", "/session", json.dumps({"token": READ}))
        answer = line._connection.getresponse()
        answer.read()
        cookie = str(answer.headers["set-cookie"]).partition(";")[0]
        assert all(each.ask("GET", "/map", token="", cookie=cookie)[0] == 200 for each in lines)
    maps: list[str] = []
    for line in lines:
        wait_for(lambda line=line: maps.append(line.ask("GET", "/map")[1]["map"]) or bool(maps[-1]))
    assert len({each for each in maps if each}) == 1


def test_a_rate_counts_the_requests_of_all_processes(lines: list[Line]) -> None:
    first = lines[READER].ask("GET", "/worst", token=SLOW)
    assert first[0] == 200
    for line in lines:
        assert line.ask("GET", "/about", token=SLOW)[0] == 429
    assert lines[WRITER].ask("GET", "/about")[0] == 200


def searches(line: Line) -> float:
    text = line.ask("GET", "/metrics")[1].decode()
    found = re.search(r'tophit_requests_total\{method="POST",route="/search",status="200"\} (\S+)', text)
    return float(found.group(1)) if found else 0


def test_a_killed_reader_is_started_again_and_nothing_it_counted_is_lost(server: Several, lines: list[Line]) -> None:
    before = searches(lines[WRITER])
    for _ in range(10):
        assert lines[READER].ask("POST", "/search", {"ids": [FIRST]})[0] == 200
    assert searches(lines[READER]) >= before + 10  # its own at once
    wait_for(lambda: searches(lines[WRITER]) >= before + 10)
    killed = server.process_of(READER)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: len(server.processes()) == 2 and killed not in server.processes())
    assert lines[WRITER].ask("POST", "/search", {"ids": [FIRST]})[0] == 200
    assert searches(lines[WRITER]) >= before + 11
    assert lines[WRITER].ask("POST", "/items", new_item("after a kill"))[0] == 200
    wait_for(lambda: _answers(server, READER, lambda line: line.shows("after a kill")))


def test_a_killed_writer_is_started_again_and_nothing_it_acknowledged_is_lost(server: Several) -> None:
    reader = server.line(READER)
    written = [f"kept {number}" for number in range(5)]
    for name in written:
        assert reader.ask("POST", "/items", new_item(name))[0] == 200
    killed = server.process_of(WRITER)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: killed not in server.processes())
    assert reader.ask("POST", "/search", {"ids": [FIRST]})[0] == 200  # searches go on

    def can_write() -> bool:
        status, answer = reader.ask("POST", "/items", new_item("new writer"))
        assert status in (200, 503), answer
        return status == 200

    wait_for(can_write)
    assert reader.shows("new writer", *written)
    wait_for(lambda: _answers(server, WRITER, lambda line: line.shows("new writer", *written)))
    reader.close()


def _answers(server: Several, process: int, condition: Callable[[Line], bool]) -> bool:
    """Whether a new connection is answered by a process, and as it should be; one that starts takes none yet."""
    try:
        line = Line(server)
    except (OSError, HTTPException):  # it was with the process that was killed
        return False
    try:
        return line.process == process and condition(line)
    finally:
        line.close()


def test_all_stop_together(server: Several) -> None:
    now = server.processes()
    assert len(now) == 2
    assert server.stop() == 0
    wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in now))


def test_workers_do_not_outlive_the_one_that_started_them(served: Place, tmp_path: Path) -> None:
    server = Several(tmp_path, served.index)
    now = server.processes()
    server.stop(signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in now))


def test_a_process_that_cannot_start_says_why(served: Place, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="run") as raised:
        Server(served.index, "--workers", 2, "--run", tmp_path)
    assert "Traceback" not in str(raised.value)
