"""The comparison's page in headless Chromium: from disk, asking nobody, on a desk, a phone and paper."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.comparing.test_summary import planted
from tests.serve.pages import LEAST_CONTRAST, NAMELESS

from tophit.comparing import Store
from tophit.comparing.comparison import compare_report
from tophit.comparing.comparison_page import to_html
from tophit.comparing.plan import Candidate, Range
from tophit.comparing.store import is_comparison
from tophit.comparing.summary import summarise
from tophit.errors import UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAME = "Nothing"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison whose candidates have planted hit rates; one of them with a search of six trials."""
    folder = tmp_path_factory.mktemp("comparison")
    store = Store(folder)
    planted(store, {"Triplet (all)": 0.0, "ProxyAnchor": 0.05, NAME: -0.1})
    plan = store.plan()
    search: dict[str, Range | list[object]] = {
        "optimizer.head.lr": Range(low=1e-4, high=1e-2, log=True),
        "loss.name": ["triplet", "margin"],
    }
    searched = plan.candidates["ProxyAnchor"].model_copy(update={"search": search})
    candidates: dict[str, Candidate] = {**plan.candidates, "ProxyAnchor": searched}
    budget = plan.budget.model_copy(update={"trials": 6})
    store.plan_path.write_text(plan.model_copy(update={"candidates": candidates, "budget": budget}).to_yaml())
    for slot in range(6):
        settings = {"optimizer.head.lr": 10 ** (-4 + slot / 3), "loss.name": ["triplet", "margin"][slot % 2]}
        state = "pruned" if slot == 1 else "complete"
        store.write_json(store.trial_path("ProxyAnchor", slot), {"settings": settings, "value": 0.3, "state": state})
    return folder


@pytest.fixture(scope="module")
def written(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The page and the folder of figures."""
    figures = tmp_path_factory.mktemp("figures")
    path, recommendation = compare_report(comparison, figures=figures)
    assert recommendation.startswith("ProxyAnchor")
    return path, figures


@pytest.fixture
def from_disk(browser: "Browser", written: tuple[Path, Path]) -> "Iterator[Page]":
    """The page, on which no script may fail and nothing be asked for."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", lambda said: wrong.append(said.text))
    address = written[0].as_uri()
    made.on("request", lambda asked: None if asked.url.startswith((address, "data:")) else wrong.append(asked.url))
    made.goto(address)
    yield made
    context.close()
    assert wrong == []


def names(page: "Page") -> list[str]:
    return page.locator("tbody tr td.name").evaluate_all("all => all.map(one => one.dataset.value).filter(Boolean)")


def test_the_page_opens_from_disk_with_table_and_figures(from_disk: "Page") -> None:
    assert from_disk.locator("h1").inner_text() != ""
    assert "ProxyAnchor: +" in from_disk.locator(".answer").inner_text()
    assert names(from_disk) == ["ProxyAnchor", "Triplet (all)", NAME]
    from_disk.locator("details summary").click()
    shown = from_disk.locator("svg.drawing")
    assert shown.count() == 4  # intervals, differences, trials of all, the settings of one search
    for place in range(4):
        box = shown.nth(place).bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["height"] > 60
    data = from_disk.locator("#comparison").evaluate("one => JSON.parse(one.textContent)")
    assert data["rows"][0]["name"] == "ProxyAnchor"


def test_the_table_sorts_by_mouse_and_keyboard(from_disk: "Page") -> None:
    head = from_disk.get_by_role("button", name="candidate")
    head.click()
    assert names(from_disk) == [NAME, "ProxyAnchor", "Triplet (all)"]
    head.press("Enter")
    assert names(from_disk) == ["Triplet (all)", "ProxyAnchor", NAME]
    assert from_disk.locator("th[aria-sort=descending]").count() == 1
    from_disk.get_by_role("button", name="difference").press("Enter")
    assert names(from_disk) == [NAME, "ProxyAnchor", "Triplet (all)"]  # what has no difference stays below


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_both_modes(from_disk: "Page", scheme: str) -> None:
    from_disk.emulate_media(color_scheme=scheme)  # pyright: ignore[reportArgumentType]
    assert from_disk.evaluate(LEAST_CONTRAST) >= 4.5
    assert from_disk.evaluate(NAMELESS) == []
    ink, axis = from_disk.evaluate(
        """() => [getComputedStyle(document.body).color,
                  getComputedStyle(document.querySelector("svg.drawing text")).fill]"""
    )
    assert axis == ink


def test_a_phone_scrolls_the_table_and_not_the_page(from_disk: "Page") -> None:
    from_disk.set_viewport_size({"width": 360, "height": 740})
    assert from_disk.evaluate("document.documentElement.scrollWidth") <= 360
    assert from_disk.locator(".scroll").evaluate("one => one.scrollWidth > one.clientWidth")
    assert from_disk.locator("svg.drawing").first.evaluate("one => one.getBoundingClientRect().right") <= 360


def test_at_1280_pixels_the_table_is_whole_and_has_more_metrics_on_request(
    from_disk: "Page", comparison: Path, tmp_path: Path
) -> None:
    store = Store(comparison)
    found = summarise(store.plan(), store)
    wanted = ("recall@1", "recall@2", "recall@4", "recall@8", "precision@5", "MAP@R")
    rows = [replace(row, metrics=dict.fromkeys(wanted, row.metrics["recall@1"])) for row in found.rows]
    from_disk.set_content(to_html(replace(found, rows=rows)))
    from_disk.set_viewport_size({"width": 1280, "height": 900})
    assert from_disk.locator(".scroll").evaluate("one => one.scrollWidth <= one.clientWidth")
    shown = set(from_disk.get_by_role("columnheader").all_inner_texts())
    assert {"recall@1", "precision@5", "MAP@R", "interval"} <= shown
    assert "recall@2" not in shown
    from_disk.get_by_label("all metrics").check()
    more = set(from_disk.get_by_role("columnheader").all_inner_texts())
    assert more - shown == {"recall@2", "recall@4", "recall@8"}


def test_on_paper_nothing_is_cut(from_disk: "Page") -> None:
    from_disk.emulate_media(media="print", color_scheme="dark")
    from_disk.set_viewport_size({"width": 688, "height": 1000})  # A4 between its margins
    assert from_disk.evaluate("document.documentElement.scrollWidth") <= 688
    assert from_disk.locator("table").first.evaluate("one => one.getBoundingClientRect().right") <= 688
    assert from_disk.locator("body").evaluate("one => getComputedStyle(one).color") == "rgb(27, 28, 34)"
    assert from_disk.pdf(format="A4").startswith(b"%PDF")


def test_the_figures_are_files_too(written: tuple[Path, Path], comparison: Path) -> None:
    stems = {path.stem for path in written[1].iterdir()}
    assert stems == {"intervals", "differences", "trials", "trials_proxyanchor"}
    assert {path.suffix for path in written[1].iterdir()} == {".png", ".svg", ".pdf", ".csv"}
    lines = (written[1] / "trials_proxyanchor.csv").read_text().splitlines()
    assert lines[0] == "optimizer.head.lr,loss.name,validation MAP@R,state"
    assert [line.split(",")[-1] for line in lines[1:3]] == ["complete", "pruned"]
    store = Store(comparison)
    found = summarise(store.plan(), store)
    row = (written[1] / "intervals.csv").read_text().splitlines()[1].split(",")
    assert row[0] == found.rows[0].name
    assert float(row[3]) == pytest.approx(found.rows[0].metrics["recall@1"].mean, rel=1e-6)
    assert json.dumps(found.to_json())  # unchanged by drawing


def test_a_folder_is_told_from_a_run(comparison: Path, tmp_path: Path) -> None:
    assert is_comparison(comparison)
    assert not is_comparison(tmp_path)


def test_without_matplotlib_the_page_has_no_figures_and_asking_for_them_is_explained(
    comparison: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tophit.comparing.comparison.has_matplotlib", lambda: False)
    path, _ = compare_report(comparison, out=tmp_path / "page.html")
    page = path.read_text()
    assert "<svg" not in page
    assert "<table" in page
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"tophit\[report\]"):
        compare_report(comparison, out=tmp_path / "page.html", figures=tmp_path)
    with pytest.raises(UsageError, match=r"There is no folder"):
        compare_report(comparison, out=tmp_path / "none" / "page.html")
