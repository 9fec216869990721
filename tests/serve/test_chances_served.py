"""Chances over HTTP and on the page: beside scores, as a least chance, as a name, and as the answer nothing."""

import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from starlette.testclient import TestClient
from tests.serve.pages import BY_FIRST, results
from tests.serve.served import Place, client_of

from tophit.calibrating import NAME

FIRST = "class 2/1.png"


def noise() -> bytes:
    picture = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def test_results_have_chances(client: TestClient) -> None:
    (answer,) = client.post("/search", json={"ids": [FIRST], "k": 6}).json()["queries"]
    chances = [hit["chance"] for hit in answer["results"]]
    by_label = {(hit["metadata"]["label"], hit["chance"]) for hit in answer["results"]}
    assert len(by_label) == len({label for label, _ in by_label}), "results of a label have its chance"
    assert all(0 <= chance <= 1 for chance in chances)
    for least in chances:  # as told, so rounded
        (cut,) = client.post("/search", json={"ids": [FIRST], "k": 6, "min_chance": least}).json()["queries"]
        assert [hit["id"] for hit in cut["results"]] == [h["id"] for h in answer["results"] if h["chance"] >= least]


def test_nothing_is_an_answer(client: TestClient) -> None:
    files = {"files": ("x.png", noise(), "image/png")}
    done = client.post("/search", files=files, data={"query": '{"min_chance": 0.999}'})
    assert done.status_code == 200
    (answer,) = done.json()["queries"]
    assert answer["results"] == []
    assert "Nothing here is like this" in answer["reason"]
    assert 0 <= answer["best_chance"] < 0.999
    assert -1 <= answer["best_score"] <= 1


def test_names(client: TestClient) -> None:
    (known,) = client.post("/name", json={"ids": [FIRST], "cut_off": 0}).json()["names"]
    assert known["label"] == known["guess"]
    assert known["query"]["id"] == FIRST
    (copied,) = client.post("/name", json={"ids": [FIRST], "cut_off": known["chance"]}).json()["names"]
    assert copied["label"] == known["label"], "a chance as told is enough"
    assert FIRST not in [hit["id"] for hit in known["evidence"]], "an item is no evidence for itself"
    (unknown,) = client.post("/name", json={"ids": [FIRST], "cut_off": 1}).json()["names"]
    assert unknown["label"] is None
    assert unknown["guess"] == known["guess"]
    files = {"files": ("x.png", noise(), "image/png")}
    (sent,) = client.post("/name", files=files, data={"query": "{}"}).json()["names"]
    assert len(sent["evidence"]) == 5


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/search", {"ids": [FIRST], "min_chance": 1.5}, "min_chance"),
        ("/search", {"ids": [FIRST], "precision": 0}, "precision"),
        ("/search", {"ids": [FIRST], "min_chance": 0.5, "rerank": ["alpha-qe"]}, "leave rerank"),
        ("/compare", {"ids": [FIRST], "min_chance": 0.5}, "leave min_chance"),
        ("/name", {"ids": [FIRST], "cut_off": 2}, "cut_off"),
        ("/name", {}, "Say what to search for"),
        ("/name", {"ids": [FIRST], "k": 3}, "k"),
    ],
)
def test_wrong_requests_are_refused(client: TestClient, path: str, body: dict[str, object], words: str) -> None:
    done = client.post(path, json=body)
    assert done.status_code == 422
    assert words in done.json()["error"]


def test_about_says_how_chances_were_calibrated(client: TestClient) -> None:
    told = client.get("/about").json()["calibration"]
    assert told["classes"] == 8
    assert "8 classes of this index" in told["sentences"][0]


def test_an_index_without_a_calibration_refuses(served: Place, tmp_path: Path) -> None:
    shutil.copytree(served.index, tmp_path / "index")
    (tmp_path / "index" / "v1" / NAME).unlink()
    with client_of(Place(tmp_path / "index", served.other, served.images)) as bare:
        assert bare.get("/about").json()["calibration"] is None
        assert "chance" not in bare.post("/search", json={"ids": [FIRST]}).json()["queries"][0]["results"][0]
        for path, body in (("/search", {"ids": [FIRST], "min_chance": 0.5}), ("/name", {"ids": [FIRST]})):
            done = bare.post(path, json=body)
            assert done.status_code == 422
            assert "tophit calibrate" in done.json()["error"]


def test_the_page_shows_chances_and_that_nothing_is_alike(page: Page) -> None:
    page.goto(BY_FIRST)
    found = results(page)
    chances = page.locator(".grid .card .chance")
    expect(chances).to_have_count(len(found))
    page.goto(f"{BY_FIRST}&least=0.99")
    nothing = page.get_by_role("region", name="No result")
    expect(nothing).to_contain_text("Nothing here is like this")
    expect(nothing).to_contain_text("less than the 99% you asked for")
    expect(page.locator("#least")).to_have_value("0.99")
    nothing.get_by_role("button", name="Show the nearest anyway").click()
    expect(page.locator(".grid .card")).to_have_count(len(found))
    assert "least" not in page.url
    page.locator("#least").select_option("0.25")
    expect(page.locator("h1")).to_have_text(re.compile("nearest, 25% likely or more$|^Nothing here"))


def test_a_result_that_is_not_likely_enough_is_not_called_unlike(page: Page) -> None:
    nothing = {"results": [], "reason": "too unlikely", "best_score": 0.68, "best_chance": 0.64}

    def fall_short(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        plain = answer.json()
        plain["queries"][0] |= nothing
        route.fulfill(response=answer, json=plain)  # type: ignore[attr-defined]

    page.route("**/search", fall_short)
    page.goto(f"{BY_FIRST}&least=0.9")
    told = page.get_by_role("region", name="No result")
    expect(told.get_by_role("heading")).to_have_text("Nothing here is likely enough")
    expect(told).to_contain_text("64% (score 0.68), less than the 90% you asked for")


def test_the_page_says_that_the_first_result_is_doubtful(page: Page) -> None:
    def doubt(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        plain = answer.json()
        for hit in plain["queries"][0]["results"]:
            hit["chance"] = 0.2
        route.fulfill(response=answer, json=plain)  # type: ignore[attr-defined]

    page.route("**/search", doubt)
    page.goto(BY_FIRST)
    results(page)
    expect(page.locator(".doubt")).to_contain_text("right with a chance of 20%")
    expect(page.locator(".chance.likely")).to_have_count(0)
