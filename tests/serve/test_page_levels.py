"""A hierarchy in the index: fields for its branches, filters by them, and the page's list to walk down."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.serve.pages import results
from tests.serve.served import Server

from tophit.data.item_rows import to_item, to_row
from tophit.data.manifest import ImageRow
from tophit.search.catalogue import Catalogue, build_catalogue, open_catalogue
from tophit.search.filters import parse_typed_filter


@pytest.fixture(scope="module")
def index(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 pictures of 8 classes under 4 genera and 2 families, whose names look like numbers."""
    from tophit.models import build_embedder

    rows = []
    for kind in range(8):
        names = (str(kind // 4), f"genus {kind // 2}", f"class {kind}")
        for number in range(6):
            path = pictures / f"class {kind}" / f"{number}.png"
            rows.append(ImageRow(path, "/".join(names), kind="path", names=names))
    folder = tmp_path_factory.mktemp("levels") / "index"
    build_catalogue(build_embedder("small", "random", dim=16, size=32), rows, folder)[0].close()
    return folder


@pytest.fixture
def catalogue(index: Path) -> Iterator[Catalogue]:
    found = open_catalogue(index)
    yield found
    found.close()


def test_an_item_has_its_branches_and_keeps_them() -> None:
    row = ImageRow(Path("/a.jpg"), "animal/bird/finch", kind="path", names=("animal", "bird", "finch"))
    name, metadata = to_item(row)
    assert (metadata["level1"], metadata["level2"]) == ("animal", "animal/bird")
    assert "level3" not in metadata
    assert to_item(to_row(name, metadata)) == (name, metadata)
    assert "level1" not in to_item(ImageRow(Path("/a.jpg"), "animal/bird"))[1]


def test_a_search_can_be_narrowed_to_a_branch(catalogue: Catalogue, pictures: Path) -> None:
    query = pictures / "class 0" / "0.png"
    for typed, kinds in (("level1=1", range(4, 8)), ("level2=0/genus 1", range(2, 4))):
        found = catalogue.search([query], k=48, where=parse_typed_filter([typed]))[0]
        labels = {hit.metadata["label"].split("/")[-1] for hit in found}
        assert labels == {f"class {kind}" for kind in kinds}
        assert len(found) == 6 * len(kinds)


def test_the_page_walks_down_the_hierarchy(index: Path, browser: Browser) -> None:
    server = Server(index)
    try:
        context = browser.new_context(base_url=server.url, viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto("/")
        facets = page.get_by_role("region", name="Branches")
        branches = facets.locator(".branches button")
        expect(branches).to_have_text(["0 24", "1 24"])
        branches.nth(1).click()
        expect(branches).to_have_text(["genus 2 12", "genus 3 12"])
        branches.first.click()
        expect(facets.locator(".trail")).to_have_text("All1genus 2")
        expect(page.locator(".chip")).to_contain_text("level2 = 1/genus 2")
        page.locator(".grid .card .open").first.click()
        assert {name.split("/")[0] for name in results(page)} == {"class 4", "class 5"}
        facets.get_by_role("button", name="1", exact=True).click()
        expect(page.locator(".chip")).to_contain_text("level1 = 1")
        facets.get_by_role("button", name="All").click()
        expect(page.locator(".chip")).to_have_count(0)
        context.close()
    finally:
        server.stop()
