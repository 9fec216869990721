"""A hierarchy in the index: fields for its branches, filters by them, and the page's list to walk down."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.serve.pages import results
from tests.serve.served import Server

from tophit.data.item_rows import to_item, to_row
from tophit.data.manifest import ImageRow
from tophit.errors import UsageError
from tophit.search.catalogue import Catalogue, build_catalogue, open_catalogue
from tophit.search.field_values import why_nothing
from tophit.search.filters import parse_filter, parse_typed_filter

OF_THE_BRANCH = """() => [...document.querySelectorAll(".grid .card .name")]
    .every((one) => one.title.startsWith("1/genus 2/"))"""


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


def test_an_item_has_its_labels_and_keeps_them(pictures: Path, tmp_path: Path) -> None:
    """Through the index, a filter as typed, and the row that a new model would embed again."""
    from tophit.models import build_embedder

    sets = [("red", "shoe"), ("red", "hat"), ("blue", "shoe")]
    rows = [
        ImageRow(pictures / "class 0" / f"{number}.png", ";".join(names), kind="several", names=names)
        for number, names in enumerate(sets)
    ]
    with build_catalogue(build_embedder("small", "random", dim=16, size=32), rows, tmp_path / "index")[0] as catalogue:
        for typed, wanted in (("labels=red", {0, 1}), ("labels=hat,blue", {1, 2}), ("labels!=shoe", {1})):
            (found,) = catalogue.search([rows[0].path], where=parse_typed_filter([typed]))
            assert {hit.metadata["label"] for hit in found} == {";".join(sets[number]) for number in wanted}
        hit = catalogue.search([rows[0].path], k=1)[0][0]
        assert hit.metadata["labels"] == list(sets[0])
        assert to_item(to_row(hit.id, hit.metadata)) == (hit.id, hit.metadata)
        assert "Values of labels: blue, hat, red, shoe." in why_nothing(catalogue.index, {"labels": "green"})
    with pytest.raises(UsageError, match="labels have no order"):
        parse_filter(parse_typed_filter(["labels<red"]))


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
        page.wait_for_function(OF_THE_BRANCH)  # the start page shows its items
        page.locator(".grid .card .open").first.click()
        assert {name.split("/")[0] for name in results(page)} == {"class 4", "class 5"}
        facets.get_by_role("button", name="1", exact=True).click()
        expect(page.locator(".chip")).to_contain_text("level1 = 1")
        facets.get_by_role("button", name="All").click()
        expect(page.locator(".chip")).to_have_count(0)
        page.goto("/?view=map")
        legend = page.locator(".map-legend .name")
        expect(legend).to_have_count(8, timeout=60_000)
        for level, names in (("level 1", {"0", "1"}), ("level 2", {f"{n // 2}/genus {n}" for n in range(4)})):
            page.get_by_label("Colour by").select_option(level)
            expect(legend).to_have_count(len(names))
            assert set(legend.all_text_contents()) == names
            page.wait_for_function("() => tophitMap.named().length > 0")  # drawn in the frame after the legend
            drawn = page.evaluate("() => new Set(tophitMap.named().map(({ label }) => label)).size")
            assert drawn <= len(names)
        page.get_by_label("Branch").fill("0/")
        expect(page.get_by_text("2 of 4 branches marked")).to_be_visible()
        context.close()
    finally:
        server.stop()
