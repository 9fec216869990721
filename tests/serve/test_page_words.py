"""Words on the page: a box that is there only where the model has a text tower."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.models.towers import tiny_towers
from tests.serve.pages import BY_FIRST, FIRST, asked, results
from tests.serve.served import Place, Server

import tophit
from tophit.data.folders import manifest_from_folder
from tophit.search.catalogue import ItemId, build_catalogue, open_catalogue
from tophit.search.query import Query


@pytest.fixture(scope="module")
def words_index(served: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    embedder = tophit.load(tiny_towers("clip", folder / "model"))
    build_catalogue(embedder, manifest_from_folder(served.images).rows, folder / "index")[0].close()
    return folder / "index"


@pytest.fixture(scope="module")
def words_server(words_index: Path) -> Iterator[Server]:
    made = Server(words_index)
    yield made
    made.stop()


@pytest.fixture
def words_page(browser: Browser, words_server: Server) -> Iterator[Page]:
    context = browser.new_context(base_url=words_server.url, viewport={"width": 1200, "height": 900})
    made = context.new_page()
    made.set_default_timeout(60_000)
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    yield made
    context.close()
    assert wrong == []


def test_words_search_and_mix_with_a_picture(words_page: Page, words_index: Path, served: Place) -> None:
    page, root = words_page, f"{served.images}/"
    with open_catalogue(words_index) as catalogue:
        by_text = [hit.id.removeprefix(root) for hit in catalogue.search_text(["red mug"], 24)[0]]
        query = Query([ItemId(str(served.images / FIRST))], text="red mug", text_weight=0.2, k=24)
        mixed = [hit.id.removeprefix(root) for hit in catalogue.answer(query)[0]]
    page.goto("/")
    expect(page.get_by_role("heading", name="Search by words or a picture")).to_be_visible()
    page.locator("#words").fill("red mug")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="24 nearest to “red mug”")).to_be_visible()
    assert results(page) == by_text
    assert asked(page)["text"] == ["red mug"]
    expect(page.locator("#text-weight")).to_have_count(0)  # there is no picture to weigh them against
    assert page.locator(".words").inner_text().strip() == "Search"
    page.goto(f"{BY_FIRST}&text=red+mug")
    results(page)
    page.locator("#text-weight").fill("0.2")
    page.wait_for_url("**weight=0.2**")
    expect(page.locator(".grid .card").first).to_have_attribute("data-id", mixed[0])
    assert results(page) == mixed
    page.reload()
    assert results(page) == mixed  # the address holds it all
    page.locator("#words").fill("")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "text" not in url)


def test_a_model_without_a_text_tower_has_no_box(page: Page) -> None:
    page.goto("/")
    page.locator(".grid .card").first.wait_for()
    expect(page.get_by_role("heading", name="Search by a picture")).to_be_visible()
    expect(page.locator(".words")).to_have_count(0)
