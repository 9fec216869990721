"""The report in headless Chromium: from the disk, without a network, by mouse, keyboard, phone and on paper."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.reporting.reported import DUPLICATE, MISLABELLED, Opened
from tests.serve.pages import LEAST_CONTRAST, NAMELESS

ROWS = "#queries .query-row"
NOT_DRAWN = "() => [...document.images].filter((one) => one.complete && !one.naturalWidth).length"
# Headings whose level is more than one below the heading before.
LEAPS = """() => {
    const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((one) => Number(one.tagName[1]));
    return levels.filter((level, place) => place && level > levels[place - 1] + 1).length;
}"""


def precisions(page: Page) -> list[float]:
    return [float(text.strip("%")) for text in page.locator(f"{ROWS} .values b").all_inner_texts()]


def names(page: Page) -> list[str]:
    return page.locator(f"{ROWS} .what .name:first-child").all_inner_texts()


def test_the_file_opens_from_the_disk_with_its_pictures_and_asks_no_host(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)  # the fixture fails on any request beyond the file, and on any error of a script
    expect(page.get_by_role("heading", level=1)).to_contain_text("of 100 searches have a right first result")
    expect(page.locator(".kicker")).to_contain_text("first run against <b>other")
    expect(page.locator(".verdict")).to_contain_text("MAP@R is")
    assert page.locator("#galleries .cell img").count() > 50
    page.wait_for_function("() => [...document.images].every((one) => one.complete || one.loading === 'lazy')")
    assert page.evaluate(NOT_DRAWN) == 0
    assert page.locator("#curves svg.drawing").count() >= 4
    marks = page.locator("#galleries .cell.wrong .mark").all_inner_texts()
    assert set(marks) == {"✗"}
    assert set(page.locator("#galleries .cell.right .mark").all_inner_texts()) == {"✓"}


def test_pictures_are_on_the_first_screen_and_the_details_are_folded(report_page: Path, opened: Opened) -> None:
    page = opened(report_page, folded=True)
    assert page.locator("#sample .cell img").nth(9).evaluate("one => one.getBoundingClientRect().bottom < innerHeight")
    expect(page.locator("#sample .asked-cell").first).to_contain_text(re.compile(r"[0-9]+ of [0-9]+ in top 10"))
    assert page.evaluate("document.documentElement.scrollHeight") < 2 * 900
    assert page.locator("details.part[open]").count() == 0
    expect(page.locator("#metrics table")).to_be_hidden()
    page.get_by_role("link", name="Metrics", exact=True).click()
    expect(page.locator("#metrics table").first).to_be_visible()
    page.locator("#sample .asked-cell").first.click()
    expect(page.locator("article.detail")).to_be_visible()


def test_the_worst_queries_are_sorted_and_filtered(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    found = precisions(page)
    assert len(found) == 50
    assert found == sorted(found)
    page.get_by_label("Sort by").select_option("first")
    firsts = [int(text.removeprefix("first at ")) for text in page.locator(f"{ROWS} .values .muted").all_inner_texts()]
    assert firsts == sorted(firsts, reverse=True)
    page.get_by_label("Sort by").select_option("pair")
    assert names(page) == sorted(names(page))
    field = page.locator("#queries input[type=search]")
    field.fill("class 7")
    expect(page.locator("#queries [role=status]")).to_contain_text(" of 50")
    for row in page.locator(ROWS).all():
        assert "class 7" in row.inner_text()
    expect(page.locator("#queries .lead")).to_contain_text("All 50 queries, lowest average precision first")
    expect(page.locator("#queries .lead")).to_contain_text("the class of the nearest wrong result")
    page.locator(ROWS).first.click()
    expect(page.locator("article.detail")).to_have_count(1)
    field.fill("class ")
    expect(page.locator("article.detail")).to_have_count(1)  # it is still listed
    field.fill("no such class")
    expect(page.locator("article.detail")).to_have_count(0)
    expect(page.locator("#queries .empty")).to_be_visible()


def test_a_query_opens_its_list_and_the_arrows_go_on(single_page: Path, opened: Opened) -> None:
    page = opened(single_page)
    row = page.locator(ROWS).nth(2)
    row.click()
    detail = page.locator(".detail")
    expect(detail.locator(".cells .cell").nth(9)).to_be_visible()
    label = names(page)[2]
    expect(detail.locator("h3")).to_have_text(label)
    row.press("ArrowDown")
    expect(page.locator(ROWS).nth(3)).to_be_focused()
    expect(page.locator(ROWS).nth(3)).to_have_attribute("aria-current", "true")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator(ROWS).nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(ROWS).last).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("article.detail")).to_have_count(0)
    expect(page.locator(ROWS).last).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("article.detail")).to_have_count(1)


def test_what_stood_before_the_first_right_answer_is_said(single_page: Path, opened: Opened) -> None:
    page = opened(single_page)
    page.get_by_label("Sort by").select_option("first")
    page.locator(ROWS).first.click()
    first = int(page.locator(f"{ROWS} .values .muted").first.inner_text().removeprefix("first at "))
    assert first > 1
    wrong = page.locator(".detail .cells .cell")
    classes = wrong.evaluate_all("all => all.map((one) => one.classList.contains('right'))")
    assert classes.index(True) == min(first - 1, 10)  # of more than ten, the first right one stands behind them
    expect(page.locator(".detail .story-line").first).to_contain_text(f"at rank {first}, after")


def test_two_models_stand_side_by_side_with_rank_changes(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    page.locator("#won .row-open").first.click()
    left, right = (page.locator(".detail .rankings > div").nth(number).locator(".moved") for number in (0, 1))
    expect(left).to_have_count(10)
    before = left.evaluate_all("all => all.map((one) => one.title)")
    after = right.evaluate_all("all => all.map((one) => one.title)")
    badges = right.locator(".badge").all_inner_texts()
    for rank, (title, badge) in enumerate(zip(after, badges, strict=True), 1):
        old = before.index(title) + 1 if title in before else None
        moved = 0 if old is None else old - rank
        says = f"up {moved}" if moved > 0 else f"down {-moved}" if moved else "new" if old is None else "same"
        assert badge.split(" ", 1)[1] == says
    lost = [title for title in before if title not in after]
    assert page.locator(".detail .moved.lost").evaluate_all("all => all.map((one) => one.title)") == lost
    texts = page.locator("#won table").first.locator("tbody td:last-child").all_inner_texts()
    won_by = [float(text) for text in texts]
    assert won_by == sorted(won_by, reverse=True)
    expect(page.locator("#won .lead")).to_contain_text("95% interval")
    won = page.evaluate("JSON.parse(document.getElementById('report-content').textContent).turned.won")
    listed = page.locator("#won table").first.locator("tbody tr").count()
    words = f"the first {listed} of {won}" if listed < won else f"{listed} quer"
    expect(page.locator("#won caption").first).to_contain_text(words)


def test_the_misplaced_sets_of_the_top_k_precision_loss_are_shown(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    page.locator(ROWS).first.click()
    belong, intrude = page.get_by_role("list", name="P", exact=True), page.get_by_role("list", name="N", exact=True)
    label = page.locator(".detail h3").inner_text()
    assert 0 < belong.locator(".cell").count() == intrude.locator(".cell").count() <= 3
    assert set(belong.locator(".name").all_inner_texts()) == {label}
    assert label not in intrude.locator(".name").all_inner_texts()
    expect(page.locator(".misplaced")).not_to_contain_text("just")
    ours = page.locator(".detail .rankings > div").nth(1).locator(".moved")
    titles = ours.evaluate_all("all => all.map((one) => one.title)")
    for cell in intrude.locator(".cell").all():  # those stand among the first k
        title = cell.get_attribute("title")
        expect(cell.locator(".under").first).to_have_text(f"rank {titles.index(title) + 1}")


def test_the_map_shows_an_image_on_hover_and_marks_a_class(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    canvas = page.locator("#map canvas")
    canvas.scroll_into_view_if_needed()
    area = canvas.bounding_box()
    assert area is not None
    x, y = page.evaluate("tophitMap.place(4)")
    page.mouse.move(area["x"] + x, area["y"] + y)
    hint = page.locator("#map .hint")
    expect(hint.locator("img")).to_be_visible()
    label = hint.locator("span").inner_text()
    assert label.startswith("class ")
    page.mouse.click(area["x"] + x, area["y"] + y)
    expect(page.locator("#map input")).to_have_value(label)
    expect(page.locator("#map [role=status]")).to_have_text("1 class marked")
    canvas.focus()
    canvas.press("ArrowRight")
    expect(hint).to_be_visible()
    page.locator("#map input").fill("class 1")
    expect(page.locator("#map [role=status]")).to_have_text("2 classes marked")  # 10 and 11


# Whether some points of the map are faded: the opacity of the pixel in the middle of each.
FADED = """() => {
    const canvas = document.querySelector("#map canvas");
    const scale = canvas.width / canvas.getBoundingClientRect().width;
    const opacity = (row) => {
        const [x, y] = tophitMap.place(row).map((one) => Math.round(one * scale));
        return canvas.getContext("2d").getImageData(x, y, 1, 1).data[3];
    };
    return Array.from({ length: 50 }, (_, row) => row).some((row) => opacity(row) < 100);
}"""


class Map:
    """The report's map, and what may be marked on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.status = page.locator("#map [role=status]")
        self.canvas = page.locator("#map canvas")

    def place(self, x: float, y: float) -> tuple[float, float]:
        self.canvas.scroll_into_view_if_needed()
        area = self.canvas.bounding_box()
        assert area is not None
        return area["x"] + x, area["y"] + y

    def draw_around_first(self) -> None:
        """Draw a lasso around the first point, holding Shift."""
        x, y = self.page.evaluate("tophitMap.place(0)")
        self.page.keyboard.down("Shift")
        self.page.mouse.move(*self.place(x - 25, y - 25))
        self.page.mouse.down()
        for right, down in ((25, -25), (25, 25), (-25, 25)):
            self.page.mouse.move(*self.place(x + right, y + down), steps=3)
        self.page.mouse.up()
        self.page.keyboard.up("Shift")
        expect(self.status).to_contain_text("inside the lasso")
        expect(self.page.locator("#map .inside")).to_be_visible()
        self.page.wait_for_function(FADED)

    def expect_nothing_marked(self) -> None:
        expect(self.status).to_have_text("")
        expect(self.page.locator("#map .inside")).to_have_count(0)
        expect(self.page.locator("#map input")).to_have_value("")
        expect(self.page.locator("#map [aria-label=Classes] [aria-pressed=true]")).to_have_count(0)
        self.page.wait_for_function(f"() => !({FADED})()")


def test_a_lasso_and_a_marked_class_can_be_cleared(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    shown = Map(page)
    button = page.locator("#map").get_by_role("button", name="Lasso")
    ways = {
        "Escape": lambda: page.keyboard.press("Escape"),
        "the button": button.click,
        "the button again": button.click,
        "an empty place": lambda: page.mouse.click(*shown.place(12, 100)),
        "show all": page.locator("#map").get_by_role("button", name="Show all").click,
        "clear": page.locator("#map").get_by_role("button", name="Clear").click,
    }
    for clear in ways.values():
        shown.draw_around_first()
        clear()
        shown.expect_nothing_marked()
    page.locator("#map [aria-label=Classes] button").first.click()
    expect(shown.status).to_have_text("1 class marked")
    page.keyboard.press("Escape")
    shown.expect_nothing_marked()


def test_a_lasso_and_a_marked_class_replace_one_another(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    shown = Map(page)
    first = page.locator("#map [aria-label=Classes] button").first
    first.click()
    page.wait_for_function(FADED)
    shown.draw_around_first()
    expect(page.locator("#map input")).to_have_value("")
    expect(first).to_have_attribute("aria-pressed", "false")
    first.click()
    expect(first).to_have_attribute("aria-pressed", "true")
    expect(shown.status).to_have_text("1 class marked")
    expect(page.locator("#map .inside")).to_have_count(0)
    first.click()
    shown.expect_nothing_marked()


def test_only_differences_beyond_doubt_are_coloured(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    rows = page.evaluate("JSON.parse(document.getElementById('report-content').textContent).metrics")
    shown = page.locator("#metrics .metrics tbody tr td:nth-child(4)").evaluate_all(
        "all => all.map((one) => one.className)"
    )
    for row, classes in zip(rows, shown, strict=True):
        low, high = row["bounds"]
        sure = (low > 0 or high < 0) and row["p"] < 0.05
        assert classes.split() == (["n", "up" if low > 0 else "down"] if sure else ["n"])
    expect(page.locator("#metrics .under-table")).to_contain_text(f"{len(rows)} metrics are compared")


def test_a_difference_with_a_large_p_is_not_coloured(report_page: Path, opened: Opened, tmp_path: Path) -> None:
    """The page with planted rows: an interval above 0 with p = 0.07, one with p = 0.01, one that holds 0."""
    text = report_page.read_text(encoding="utf-8")
    before, rest = text.split('id="report-content">', 1)
    data, after = rest.split("</script>", 1)
    content = json.loads(data)
    planted = [([0.01, 0.2], 0.07), ([0.01, 0.2], 0.01), ([-0.1, 0.2], 0.01), ([-0.2, -0.1], 0.01)]
    for row, (bounds, p) in zip(content["metrics"], planted, strict=False):
        row["bounds"], row["p"] = bounds, p
    changed = tmp_path / "planted.html"
    data = json.dumps(content).replace("<", "\\u003c")
    changed.write_text(f'{before}id="report-content">{data}</script>{after}', encoding="utf-8")
    cells = opened(changed).locator("#metrics .metrics tbody tr td:nth-child(4)")
    assert cells.evaluate_all("all => all.slice(0, 4).map((one) => one.className.trim())") == [
        "n",
        "n up",
        "n",
        "n down",
    ]


def test_planted_label_problems_are_shown_with_pictures(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    for planted in (DUPLICATE, MISLABELLED):
        problem = page.locator(".problem", has_text=planted).first
        expect(problem.locator("img")).to_have_count(2)
        expect(problem.locator("img").first).to_be_visible()
    expect(page.locator("#labels .lead").first).to_contain_text("two_label_problems.csv")


def test_local_centres_of_a_proxy_loss_are_shown(single_page: Path, opened: Opened) -> None:
    page = opened(single_page)
    assert page.locator("#centres .centre img").count() >= 10
    assert "0 of the class's" not in page.locator("#centres").inner_text()
    expect(page.locator("#centres .lead")).to_contain_text("2 proxies")
    expect(page.locator("#centres .lead")).to_contain_text("similarity to the centre")
    expect(page.locator("#centres .lead")).to_contain_text("whether or not they belong to it")


@pytest.mark.parametrize("which", ["report_page", "single_page"])
def test_a_phone_does_not_scroll_sideways_and_a_query_fills_it(
    which: str, request: pytest.FixtureRequest, opened: Opened
) -> None:
    page = opened(request.getfixturevalue(which), 390, 844, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    expect(page.locator("article.detail")).to_have_count(0)
    expect(page.locator("#galleries .cell .under.name").first).to_be_visible()  # the legend promises the class
    page.locator(ROWS).first.tap()
    area = page.locator("article.detail").bounding_box()
    assert area is not None
    assert (area["x"], area["width"]) == (0, 390)
    assert page.evaluate("document.querySelector('article.detail').scrollWidth") <= 390
    page.get_by_label("Close").tap()
    expect(page.locator("article.detail")).to_have_count(0)


def test_it_prints_with_all_parts_and_without_controls(report_page: Path, opened: Opened, tmp_path: Path) -> None:
    page = opened(report_page)
    assert page.pdf(path=tmp_path / "report.pdf", format="A4", print_background=True).startswith(b"%PDF")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("#recipe pre")).to_be_visible()
    expect(page.locator("#queries .print-only .gallery-row").first).to_be_visible()
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 between its margins
    for table in page.locator("#won table").all():
        assert all(table.locator("tbody tr").evaluate_all("all => all.map((one) => one.offsetHeight > 0)"))
        assert table.evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")
        assert table.evaluate("one => one.getBoundingClientRect().right") <= 688
    for hidden in ("#queries .controls", "#queries .browser", ".report-bar", ".map-tools"):
        expect(page.locator(hidden).first).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screen_reader_and_weak_eyes_can_use_it(scheme: str, report_page: Path, opened: Opened) -> None:
    page = opened(report_page, color_scheme=scheme)
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(LEAPS) == 0
    assert page.evaluate(LEAST_CONTRAST) >= 4.5
    assert page.evaluate("[...document.querySelectorAll('table')].every((one) => one.caption?.textContent.trim())")
    assert page.evaluate("[...document.querySelectorAll('#galleries .cell img')].every((one) => one.alt)")
