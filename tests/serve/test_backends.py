"""Each search backend behind HTTP: the same routes, the same answers, the same errors."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from tests.search.servers import BACKENDS, place_of
from tests.search.servers import Place as BackendPlace
from tests.serve.served import ADMIN, Place, client_of

from tophit.data.folders import manifest_from_folder
from tophit.models import build_embedder
from tophit.search.catalogue import build_catalogue, open_catalogue
from tophit.search.versions import IndexOptions
from tophit.serve.security import make_access

FIRST = "class 2/3.png"


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> BackendPlace:
    return place_of(request.param, request, tmp_path)


@pytest.fixture
def kept(backend: BackendPlace, served: Place, tmp_path: Path) -> Place:
    """A catalogue of two classes of pictures in a backend."""
    rows = [row for row in manifest_from_folder(served.images).rows if row.label in ("class 2", "class 5")]
    remote = IndexOptions(backend.backend, backend.location, backend.name)
    torch.manual_seed(0)
    embedder = build_embedder("small", "random", dim=16, size=32)
    folder = tmp_path / "catalogue"
    build_catalogue(embedder, rows, folder, options=None if backend.backend == "local" else remote)[0].close()
    return Place(folder, folder, served.images)


@pytest.fixture
def admin(kept: Place, tokens: Path) -> Iterator[TestClient]:
    with client_of(kept, make_access("127.0.0.1", tokens), writable=True, images=kept.images) as made:
        made.headers["authorization"] = f"Bearer {ADMIN}"
        yield made


def found(client: TestClient, **query: Any) -> list[str]:
    answer = client.post("/search", json=query)
    assert answer.status_code == 200, answer.text
    return [hit["id"] for hit in answer.json()["queries"][0]["results"]]


def test_searches_find_what_the_catalogue_finds(admin: TestClient, kept: Place) -> None:
    names = [item["id"] for item in admin.get("/items").json()["items"]]
    assert len(names) == 12
    expected: dict[str, list[str]] = {}
    with open_catalogue(kept.index) as catalogue:
        for name in names:
            hits = catalogue.search_ids([str(kept.images / name)], 4)[0]
            expected[name] = [hit.id[len(str(kept.images)) + 1 :] for hit in hits]
        nearest = catalogue.search_ids([str(kept.images / FIRST)], 4, {"label": "class 5"})[0]
    with ThreadPoolExecutor(8) as threads:  # some of them are answered by one call
        assert list(threads.map(lambda name: found(admin, ids=[name], k=4), names)) == list(expected.values())
    filtered = [hit.id[len(str(kept.images)) + 1 :] for hit in nearest]
    assert found(admin, ids=[FIRST], k=4, where={"label": "class 5"}) == filtered
    data = (kept.images / FIRST).read_bytes()
    answer = admin.post("/search", files={"files": data}, data={"query": '{"k": 5}'}).json()
    assert [hit["id"] for hit in answer["queries"][0]["results"]] == [FIRST, *expected[FIRST]]
    assert admin.get(answer["queries"][0]["results"][0]["thumbnail"]).content[:4] == b"RIFF"


def test_changes_are_shown_at_once(admin: TestClient) -> None:
    before = admin.get("/about").json()
    item = {"id": "new", "vector": [1.0] * 16, "metadata": {"shelf": 7}}
    assert admin.post("/items", json={"items": [item]}).json()["written"] == 1
    after = admin.get("/about").json()
    assert after["items"] == before["items"] + 1 == 13
    assert after["index"] != before["index"]
    assert found(admin, ids=[FIRST], where={"shelf": 7}) == ["new"]  # a field that is new, too
    assert found(admin, vectors=[[1.0] * 16], k=1) == ["new"]
    assert admin.request("DELETE", "/items", json={"ids": ["new", "nothing"]}).json()["deleted"] == 1
    assert found(admin, ids=[FIRST], where={"shelf": 7}) == []
    assert admin.post("/search", json={"ids": ["new"]}).status_code == 404


def test_the_map_and_the_worst_queries_are_made(admin: TestClient) -> None:
    assert when_ready(admin, "/map")["count"] == 12
    assert when_ready(admin, "/worst")["tried"] == 6  # of the test split


def when_ready(client: TestClient, path: str) -> Any:
    """Ask until it is made; each request waits a second for that."""
    return next(told for _ in range(60) if (told := client.get(path).json())["state"] == "ready")


def test_an_engine_that_was_killed_is_used_again_when_it_is_back(admin: TestClient, backend: BackendPlace) -> None:
    expected = found(admin, ids=[FIRST])
    backend.kill_server()
    for _ in range(20):
        answer = admin.post("/search", json={"ids": [FIRST]})
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 200:
            break
        assert "can't do this now" in answer.json()["error"]  # a sentence, without addresses or passwords
    assert found(admin, ids=[FIRST]) == expected
