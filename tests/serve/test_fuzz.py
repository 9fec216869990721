"""Anything may come in: no 500 and no growth in memory."""

import os
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from PIL import Image
from starlette.testclient import TestClient
from tests.serve import bombs
from tests.serve.served import ADMIN, Place, encoded

from conftest import draw_picture


def memory(pid: int) -> int:
    """The resident bytes of a process and of those it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return own + sum(memory(int(child)) for child in children)


def seeds() -> list[bytes]:
    picture = draw_picture(3, 3, side=96)
    rotated = Image.Exif()
    rotated[0x0112] = 6
    return [
        encoded(picture, "PNG"),
        encoded(picture, "JPEG"),
        encoded(picture, "JPEG", exif=rotated, progressive=True),
        encoded(picture, "WEBP"),
        encoded(picture, "WEBP", lossless=True),
        encoded(picture.convert("P"), "PNG", transparency=0),
        encoded(picture.convert("I;16"), "PNG"),
        bombs.frames(5),
        encoded(picture.convert("P"), "GIF"),
        encoded(picture, "BMP"),
        encoded(picture, "TIFF", compression="tiff_lzw"),
        encoded(picture, "AVIF"),
        bombs.boxed("HEIF", 64, 64),
    ]


def send_mutated(server_url: str, start: int, count: int) -> dict[int, int]:
    """Search with mutated pictures, eight a request but each refused for itself; return how often each status came."""
    good = seeds()
    told: dict[int, int] = {}
    with httpx.Client(base_url=server_url, timeout=60) as client:
        for number in range(start, start + count):
            data = bombs.mutated(good[number % len(good)], number)
            status = client.post("/search", files={"files": data}, data={"query": '{"k": 1}'}).status_code
            told[status] = told.get(status, 0) + 1
    return told


def check_mutated(served: Place, serve, warm: int, count: int) -> None:
    server = serve(served.index, "--limit", "uploads=8")
    send_mutated(server.url, 0, warm)
    before = memory(server.process.pid)
    told = send_mutated(server.url, warm, count)
    assert set(told) == {200, 422}, told  # some still are pictures, and none is an error of ours
    assert memory(server.process.pid) < 1.05 * before + 8_000_000


def test_mutated_pictures_make_no_error_and_no_growth(served: Place, serve) -> None:
    check_mutated(served, serve, 40, 100)


@pytest.mark.slow
def test_a_thousand_mutated_pictures_make_no_error_and_no_growth(served: Place, serve) -> None:
    check_mutated(served, serve, 200, 1000)


def try_operation(operation, mode, examples: int, head: dict[str, str], seen: set[int]) -> None:
    """Send requests to one route, good or bad ones, and check that each answer is one that the description foresees."""
    described = {*operation.definition.raw["responses"], "405"}

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers_are_foreseen(case) -> None:
        answer = case.call(headers=head, timeout=60)
        seen.add(answer.status_code)
        assert answer.status_code < 500 or answer.status_code == 503, (answer.status_code, answer.text)
        assert str(answer.status_code) in described, (answer.status_code, described)
        if answer.status_code >= 400 and answer.request.method != "HEAD":
            assert answer.json()["error"]

    with suppress(Unsatisfiable):  # a route without anything to be wrong about
        answers_are_foreseen()


def warm_up(url: str, head: dict[str, str]) -> None:
    """Let a server make what it makes once: the map, the worst queries, the processes that decode."""
    with httpx.Client(base_url=url, headers=head, timeout=60) as client:
        for path in ("/map", "/worst"):
            while client.get(path).json()["state"] != "ready":
                pass
        files = [("files", encoded(draw_picture(1, n, side=600))) for n in range(16)]
        for _ in range(3):
            assert client.post("/search", files=files).status_code == 200


def check_openapi(served_copy: Place, serve, tokens: Path, examples: int) -> None:
    """Let schemathesis make requests of every route, good and bad, and look at each answer."""
    import schemathesis

    server = serve(served_copy.index, "--against", served_copy.other, "--token-file", tokens)
    head = {"Authorization": f"Bearer {ADMIN}"}
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    warm_up(server.url, head)
    before = memory(server.process.pid)
    tried: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        seen = tried.setdefault(f"{operation.method} {operation.path}", set())
        for mode in schemathesis.GenerationMode:
            try_operation(operation, mode, examples, head, seen)
    assert len(tried) >= 15
    assert 422 in tried["post /search"]
    assert memory(server.process.pid) < 1.05 * before + 16_000_000


@pytest.mark.filterwarnings("ignore")
def test_requests_by_the_openapi_make_no_error(served_copy: Place, serve, tokens: Path) -> None:
    check_openapi(served_copy, serve, tokens, 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_many_requests_by_the_openapi_make_no_error(served_copy: Place, serve, tokens: Path) -> None:
    check_openapi(served_copy, serve, tokens, 150)


@pytest.mark.slow
def test_an_animation_of_ten_thousand_frames(client: TestClient) -> None:
    assert client.post("/search", files={"files": bombs.frames(10_000)}).status_code == 200


def test_a_file_of_chance_is_refused(client: TestClient) -> None:
    for size in (1, 100, 10_000):
        assert client.post("/search", files={"files": os.urandom(size)}).status_code == 422
