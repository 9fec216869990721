"""Every limit of docs/serve.md: what is met, and the sentence that says so."""

import asyncio
import io
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from tests.serve import bombs
from tests.serve.served import ADMIN, Place, client_of, encoded

from conftest import draw_picture
from tophit.errors import UsageError
from tophit.images.formats import has_heif
from tophit.serve.batching import Batcher
from tophit.serve.config import Limits
from tophit.serve.decode_pool import DecodePool
from tophit.serve.problems import Problem

FIRST = "class 2/3.png"


def refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"], answer.text


# Upload


def test_a_body_is_counted_while_it_streams_and_refused_early(client: TestClient) -> None:
    refused(client.post("/search", files={"files": bytes(20_000_001)}), 413, "larger than 20,000,000 bytes")
    refused(
        client.post("/search", content=b" " * 1_000_001, headers={"content-type": "application/json"}), 413, "1,000,000"
    )
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        for _ in range(60):  # no Content-Length: only counting tells
            sent += 1_000_000
            yield bytes(1_000_000)

    answer = client.post("/search", content=endless(), headers={"content-type": "multipart/form-data; boundary=x"})
    refused(answer, 413, "20,000,000")


def test_an_endless_body_to_a_real_server_is_cut_off(served: Place, serve) -> None:
    server = serve(served.index, "--limit", "body_bytes=300000")
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        for _ in range(3000):
            sent += 100_000
            yield bytes(100_000)

    headers = {"content-type": "multipart/form-data; boundary=x"}
    try:
        answer = httpx.post(f"{server.url}/search", content=endless(), headers=headers)
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # closed while we were still sending
    assert sent < 100_000_000


def test_16_files_and_no_more(client: TestClient) -> None:
    data = encoded(draw_picture(1, 1))
    answer = client.post("/search", files=[("files", data)] * 16, data={"query": '{"k": 1}'})
    assert len(answer.json()["queries"]) == 16
    refused(client.post("/search", files=[("files", data)] * 17), 413, "Too many files")


def test_what_is_neither_json_nor_a_form_is_refused(client: TestClient) -> None:
    refused(client.post("/search", content=b"ids=1", headers={"content-type": "text/plain"}), 415, "application/json")
    refused(client.post("/search", files={"other": b"x"}), 422, "field 'files'")
    refused(
        client.post("/search", json={"ids": [FIRST], "url": "http://example.org/a.jpg"}), 422, "url"
    )  # no URL search
    refused(client.post("/search", json={}), 422, "Say what to search for")
    for text in ("{", "[" * 100_000, '{"k": NaN}', '{"ids": 3}'):
        headers = {"content-type": "application/json"}
        assert client.post("/search", content=text.encode(), headers=headers).status_code == 422


# Decode


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("178 megapixels", "more than 50,000,000 pixels"),
        ("177 megapixels, long", "longer than 16,384"),
        ("lying header", "longer than 16,384"),
        ("small lie", "damaged"),
        ("ribbon", "more than 50 times the other"),
        ("truncated", "damaged"),
        ("polyglot", "longer than 16,384"),
        ("script", "not a JPEG, PNG, WebP"),
        ("psd", "not a JPEG, PNG, WebP"),
        ("giant gif", "longer than 16,384"),
        ("giant bmp", "longer than 16,384"),
        ("giant tiff", "longer than 16,384"),
        ("177 megapixels of tiff", "more than 50,000,000 pixels"),
        ("60 megapixels of avif", "more than 50,000,000 pixels"),
        ("60 megapixels of heic", "more than 50,000,000 pixels"),
        ("empty", "not a JPEG, PNG, WebP"),
    ],
)
def test_bombs_are_refused_by_content_before_their_pixels_are_decoded(
    client: TestClient, name: str, words: str
) -> None:
    refused(client.post("/search", files={"files": ("nice.jpg", bombs.corpus()[name], "image/jpeg")}), 422, words)


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_a_picture_behind_a_box_of_another_size_hurts_nobody(client: TestClient, kind: str) -> None:
    for data in (bombs.boxed(kind, 3_000, 3_000), bombs.boxed(kind, 64, 64, side=1_500)):
        assert client.post("/search", files={"files": data}).status_code in (200, 422)
    assert client.post("/search", files={"files": encoded(draw_picture(1, 1))}).status_code == 200


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "AVIF", "HEIF"])
def test_other_formats_search_as_the_same_picture_does(client: TestClient, served: Place, kind: str) -> None:
    has_heif()  # lets this process write one
    with Image.open(served.images / FIRST) as picture:
        data = encoded(picture.convert("RGB"), kind, **({"quality": 95} if kind in ("AVIF", "HEIF") else {}))
    answer = client.post("/search", files={"files": data}, data={"query": '{"k": 3}'})
    assert answer.status_code == 200, answer.text
    assert answer.json()["queries"][0]["results"][0]["id"] == FIRST
    kept = client.get(f"/uploads/{answer.json()['queries'][0]['query']['upload']}").content
    assert Image.open(io.BytesIO(kept)).format == "WEBP"


def test_of_many_frames_the_first_is_taken(client: TestClient) -> None:
    answer = client.post("/search", files={"files": bombs.frames(2000)}, data={"query": '{"k": 1}'})
    assert answer.status_code == 200
    kept = client.get(f"/uploads/{answer.json()['queries'][0]['query']['upload']}").content
    assert getattr(Image.open(io.BytesIO(kept)), "n_frames", 1) == 1


def test_decoding_is_stopped_after_its_time_and_the_next_picture_is_served(served: Place) -> None:
    with client_of(served, limits=Limits(decode_seconds=0.05)) as client:
        noise = np.random.default_rng(0).integers(0, 255, (4000, 4000, 3), np.uint8)
        slow = encoded(Image.fromarray(noise), "JPEG", quality=85)
        refused(client.post("/search", files={"files": slow}), 422, "longer than 0.05 seconds")
    with client_of(served) as client:
        assert client.post("/search", files={"files": encoded(draw_picture(1, 1))}).status_code == 200


def test_decoding_has_a_memory_limit_of_its_own() -> None:
    async def run() -> None:
        pool = DecodePool(Limits(decode_bytes=230_000_000), 32, workers=1)
        try:
            with pytest.raises(Problem, match=r"memory"):
                await pool.pictures(encoded(Image.new("RGB", (6900, 6900))))  # 143 MB, and copies
            assert (await pool.pictures(encoded(draw_picture(1, 1)))).pictures[0].shape == (32, 32, 3)
        finally:
            await pool.close()

    asyncio.run(run())


def test_exif_turns_the_picture_and_goes_no_further(client: TestClient) -> None:
    answer = client.post("/search", files={"files": bombs.giant_exif()})
    assert answer.status_code == 200, answer.text
    assert "secret" not in answer.text
    kept = client.get(f"/uploads/{answer.json()['queries'][0]['query']['upload']}").content
    assert b"secret" not in kept
    assert Image.open(io.BytesIO(kept)).size == (20, 40)  # upright
    assert not Image.open(io.BytesIO(kept)).getexif()


# Load


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"ids": [FIRST], "k": 1001}, "k is at most 1000"),
        ({"ids": [FIRST], "k": 0}, "k: "),
        ({"ids": [FIRST] * 1025}, "More than 1024"),
        ({"vectors": [[1.0] * 16] * 1025}, "More than 1024"),
        ({"ids": [FIRST] * 1000, "k": 100}, "more than 50,000 in all"),
        ({"uploads": ["x"] * 17}, "17 images are more than 16"),
        ({"ids": [FIRST], "where": {f"f{n}": n for n in range(33)}}, "at most 32"),
        ({"ids": [FIRST], "where": {"a": {"like": "x"}}}, "no operator 'like'"),
        ({"ids": [FIRST], "where": {"path": {"gt": "/home"}}}, "reserved for the server"),
        ({"ids": [FIRST], "rerank": ["k-reciprocal:candidates=5000"]}, "at most 1000 are allowed"),
        ({"ids": [FIRST], "rerank": ["magic"]}, "no re-ranking 'magic'"),
        ({"vectors": [[1.0] * 15]}, "16 numbers"),
        ({"vectors": [[0.0] * 16]}, "is zero"),
        ({"ids": [FIRST], "box": [0.5, 0, 0.4, 1]}, "x1 < x2"),
        ({"ids": [FIRST, "class 0/0.png"], "box": [0, 0, 1, 1]}, "single picture"),
        ({}, "Say what to search for: files, ids, uploads, vectors, text, or like"),
        ({"unlike": [FIRST]}, "unlike needs something that is wanted"),
        ({"ids": ["a\0b"]}, "NUL"),
    ],
)
def test_too_much_or_wrong_is_refused_with_a_sentence(client: TestClient, body: dict, words: str) -> None:
    refused(client.post("/search", json=body), 422, words)


def test_k_of_1000_and_32_conditions_are_allowed(admin: TestClient) -> None:
    fields = {f"f{n}": "known" for n in range(32)}
    wide = {"id": "wide", "vector": [1.0] + 15 * [0.0], "metadata": fields}
    assert admin.post("/items", json={"items": [wide]}).json()["written"] == 1
    where = {name: {"ne": n} for n, name in enumerate(fields)}
    answer = admin.post("/search", json={"ids": [FIRST], "k": 1000, "where": where}).json()
    assert len(answer["queries"][0]["results"]) == 48


def test_1000_items_a_call_and_no_more(admin: TestClient) -> None:
    items = [{"id": f"i{n}", "vector": [1.0, float(n)] + 14 * [0.0]} for n in range(1001)]
    refused(admin.post("/items", json={"items": items}), 422, "more than 1000")
    assert admin.post("/items", json={"items": items[:1000]}).json()["written"] == 1000
    refused(admin.request("DELETE", "/items", json={"ids": ["x"] * 1001}), 422, "more than 1000")


def test_a_full_queue_says_come_back(served: Place) -> None:
    with client_of(served, limits=Limits(queue=1)) as client:
        held, released = threading.Event(), threading.Event()
        library = client.library  # type: ignore[attr-defined]
        inner = library.first.batcher._embed

        def slow(pictures):
            held.set()
            released.wait(60)
            return inner(pictures)

        library.first.batcher._embed = slow
        data = encoded(draw_picture(1, 1))
        first = threading.Thread(target=lambda: client.post("/search", files={"files": data}))
        first.start()
        assert held.wait(60)
        answer = client.post("/search", json={"ids": [FIRST]})
        refused(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200
        released.set()
        first.join()
        assert client.post("/search", json={"ids": [FIRST]}).status_code == 200


def test_a_request_that_takes_too_long_is_ended(served: Place) -> None:
    with client_of(served, limits=Limits(request_seconds=0.3)) as client:
        library = client.library  # type: ignore[attr-defined]
        library.first.batcher._embed = lambda pictures: time.sleep(1.5)
        refused(client.post("/search", files={"files": encoded(draw_picture(1, 1))}), 503, "longer than 0.3 seconds")


def test_images_that_wait_go_through_the_network_together() -> None:
    async def run() -> list[int]:
        sizes: list[int] = []

        def embed(pictures):
            sizes.append(len(pictures))
            time.sleep(0.05)
            return np.stack([picture.reshape(-1)[:2] for picture in pictures])

        batcher = Batcher(embed, batch=8, wait_seconds=0.01, most_waiting=64)
        pictures = [np.full((1, 2, 1), n, np.uint8) for n in range(20)]
        found = await asyncio.gather(*(batcher.embed([picture]) for picture in pictures))
        assert [int(each[0, 0]) for each in found] == list(range(20))  # each its own
        with pytest.raises(Problem, match=r"busy"):
            await asyncio.gather(*(batcher.embed(pictures[:16]) for _ in range(5)))
        batcher.close()
        return sizes

    sizes = asyncio.run(run())
    assert sizes[:3] == [8, 8, 4]


def test_limits_are_set_by_name() -> None:
    assert Limits.parse(["k=100", "body_bytes=1_000"]) == Limits(k=100, body_bytes=1000)
    with pytest.raises(UsageError, match=r"A limit is written like k=100"):
        Limits.parse(["k"])
    with pytest.raises(UsageError, match=r"There is no limit 'size'; choices: .*pixels"):
        Limits.parse(["size=3"])
    with pytest.raises(UsageError, match=r"the limit k must be above 0|limit k must"):
        Limits.parse(["k=0"])
    with pytest.raises(UsageError, match=r"is a number, not 'many'"):
        Limits.parse(["k=many"])


# Models, stop, write


def test_there_is_no_pickle_in_an_index(served: Place) -> None:
    for path in served.index.rglob("*"):
        if path.is_file():
            assert path.suffix not in (".pt", ".pth", ".pkl", ".bin"), path
    assert list((served.index / "v1" / "embedder").glob("*.safetensors"))


def test_sigterm_not_ready_then_drained_flushed_and_exit_0(served_copy: Place, serve, tokens: Path) -> None:
    server = serve(served_copy.index, "--token-file", tokens, "--limit", "notice_seconds=5")
    head = {"authorization": f"Bearer {ADMIN}"}
    item = {"items": [{"id": "late", "vector": [1.0] * 16, "metadata": {"label": "x"}}]}
    with httpx.Client(base_url=server.url, headers=head, timeout=30) as client:
        assert client.post("/items", json=item).status_code == 200
        answers: list[int] = []
        many = [("files", encoded(draw_picture(1, n, side=600))) for n in range(16)]
        busy = threading.Thread(
            target=lambda: answers.append(
                httpx.post(f"{server.url}/search", files=many, headers=head, timeout=60).status_code
            )
        )
        busy.start()
        time.sleep(0.1)
        server.process.terminate()
        while (ready := client.get("/ready")).status_code == 200:  # until the signal has arrived
            time.sleep(0.05)
        assert (ready.status_code, ready.headers["retry-after"]) == (503, "5")
        assert client.get("/health").status_code == 200
        busy.join()
    assert answers == [200]
    assert server.stop() == 0
    from tophit.search.catalogue import open_catalogue

    with open_catalogue(served_copy.index, writable=True) as catalogue:  # the lock is free again
        assert catalogue.index.get(["late"])[0] is not None
        assert catalogue.index.verify() == []


def test_an_acknowledged_write_outlives_kill_9(served_copy: Place, serve, tokens: Path) -> None:
    server = serve(served_copy.index, "--token-file", tokens)
    data = {"items": json.dumps({"items": [{"id": "kept", "metadata": {"label": "y"}}]})}
    head = {"authorization": f"Bearer {ADMIN}"}
    answer = httpx.post(
        f"{server.url}/items", files={"files": encoded(draw_picture(1, 1))}, data=data, headers=head, timeout=60
    )
    assert answer.status_code == 200
    server.process.kill()
    server.process.wait()
    from tophit.search.catalogue import open_catalogue

    with open_catalogue(served_copy.index) as catalogue:
        item = catalogue.index.get(["kept"])[0]
        assert item is not None
        assert os.path.getsize(item.metadata["path"]) > 0


def test_a_reader_sees_what_another_process_writes(served_copy: Place) -> None:
    from tophit.search.catalogue import open_catalogue

    with client_of(served_copy) as client:
        before = client.get("/ready").headers["x-tophit-index"]
        with open_catalogue(served_copy.index, writable=True) as catalogue:
            catalogue.index.upsert(["fresh"], [[1.0] * 16], [{"label": "z"}])
        deadline = time.monotonic() + 20
        while client.get("/items", params={"id": "fresh"}).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert client.get("/ready").headers["x-tophit-index"] != before
