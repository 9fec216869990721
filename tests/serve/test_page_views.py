"""The page in headless Chromium: two models, worst queries, the map, keyboard, screen reader, phone, dark mode."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.serve.pages import BY_FIRST, DISTANCE, LEAST_CONTRAST, NAMELESS, asked, results
from tests.serve.served import READ, Place, Server


def test_two_models_side_by_side_with_rank_changes(page: Page) -> None:
    page.goto(f"{BY_FIRST}&k=12")
    results(page)
    with page.expect_response("**/compare") as told:
        page.get_by_label("Compare with other").check()
    answer = told.value.json()
    left = page.get_by_role("list", name="Results of other").get_by_role("listitem")
    right = page.get_by_role("list", name="/index").get_by_role("listitem")
    expect(right).to_have_count(12)
    for place, hit in enumerate(answer["first"]["results"]):
        change = answer["changes"][hit["id"]]
        words = (
            "new" if change is None else "same" if not change else f"up {change}" if change > 0 else f"down {-change}"
        )
        expect(right.nth(place).locator(".badge")).to_contain_text(words)
    for place, hit in enumerate(answer["second"]["results"]):
        expect(left.nth(place).locator(".badge")).to_contain_text("lost" if hit["id"] in answer["lost"] else "to ")
    expect(page.locator(".lines path")).to_have_count(answer["shared"])
    expect(page.locator(".facts")).to_contain_text(f"{answer['shared']} of 12 in common")
    right.nth(1).get_by_role("button").click()
    expect(page.locator(".asked-name")).to_contain_text(answer["first"]["results"][1]["id"])
    assert asked(page)["compare"] == ["1"]


def test_the_worst_queries(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Worst queries").click()
    rows = page.locator(".worst-list > li")
    rows.first.wait_for()
    assert rows.count() == 48
    expect(rows.first).to_contain_text("first right at rank")
    assert page.locator(".strip li.wrong").count() > 0
    expect(page.locator(".fact").first).to_contain_text("recall@1")
    confusion = page.locator(".confusions button").first
    label = confusion.locator("span").first.inner_text().split(" → ")[0]
    confusion.click()
    assert {text.split()[1] for text in page.locator(".story p b").all_inner_texts()} == {label.split()[1]}
    name = rows.first.locator(".query").get_attribute("aria-label")
    rows.first.locator(".query").click()
    expect(page.locator(".asked-name")).to_contain_text((name or "").removeprefix("Search from "))


def open_map(page: Page) -> tuple[float, float]:
    page.goto("/?view=map")
    page.locator(".map-facts").wait_for(timeout=60_000)
    area = page.locator(".map canvas").bounding_box()
    assert area
    return area["x"], area["y"]


MOVED_TO_THE_CORNER = """async (hint) => {
    const place = (await import("/page/legend.js")).hintPlace(0, 3);
    hint.className = place.class;
    Object.assign(hint.style, place.style);
}"""
HINT_INSIDE = """() => {
    const [hint, map] = [".hint", ".map-frame"].map((one) => document.querySelector(one).getBoundingClientRect());
    return map.left <= hint.left && hint.right <= map.right && map.top <= hint.top;
}"""


def test_the_map_zooms_shows_a_thumbnail_and_searches_by_a_click(page: Page) -> None:
    left, top = open_map(page)
    x, y = page.evaluate("tophitMap.place(17)")
    page.mouse.move(left + x, top + y)
    expect(page.locator(".hint span")).to_contain_text("class")
    assert page.locator(".hint img").evaluate("one => one.decode().then(() => one.naturalWidth)") > 10
    page.locator(".hint").evaluate(MOVED_TO_THE_CORNER)
    assert page.evaluate(HINT_INSIDE), "also of a point at the edge of the map"
    page.mouse.wheel(0, -600)
    page.wait_for_function(
        "([x, y]) => Math.hypot(...tophitMap.place(17).map((v, n) => v - [x, y][n])) < 2", arg=[x, y]
    )
    far = page.evaluate(DISTANCE)
    page.get_by_role("button", name="Show all").click()
    near = page.evaluate(DISTANCE)
    assert far > 1.5 * near
    page.get_by_role("button", name="Zoom in").click()
    page.mouse.move(left + 300, top + 300)
    page.mouse.down()
    before = page.evaluate("tophitMap.place(17)")
    page.mouse.move(left + 360, top + 320, steps=5)
    page.mouse.up()
    assert page.evaluate("tophitMap.place(17)") == pytest.approx([before[0] + 60, before[1] + 20], abs=4)  # panned
    page.get_by_role("button", name="Show all").click()
    x, y = page.evaluate("tophitMap.place(17)")
    page.mouse.move(left + x, top + y)
    label = page.locator(".hint span").inner_text()
    page.mouse.click(left + x, top + y)
    expect(page.locator(".asked-name")).to_contain_text(label)


@pytest.mark.parametrize("way", ["button", "shift"])
def test_a_lasso_shows_what_is_inside_and_searches_by_it(page: Page, way: str) -> None:
    left, top = open_map(page)
    size = page.locator(".map canvas").bounding_box()
    assert size
    middle = size["width"] / 2
    inside = page.evaluate(
        """middle => [...Array(48).keys()].map((row) => tophitMap.place(row))
            .filter(([x, y]) => x < middle && !(x < 300 && y < 60)).length""",
        middle,
    )
    if way == "button":
        page.get_by_role("button", name="Lasso").click()
    else:
        page.keyboard.down("Shift")
    bottom = size["height"] - 3  # the upper left corner has the map's buttons
    corners = [(2, 60), (300, 60), (300, 2), (middle, 2), (middle, bottom), (2, bottom)]
    page.mouse.move(left + corners[0][0], top + corners[0][1])
    page.mouse.down()
    for x, y in corners[1:]:
        page.mouse.move(left + x, top + y, steps=3)
    page.mouse.up()
    if way == "shift":
        page.keyboard.up("Shift")
    expect(page.locator(".chosen h2")).to_contain_text(f"{inside} inside")
    expect(page.locator(".chosen h2")).to_be_in_viewport()
    expect(page.locator(".chosen .card")).to_have_count(inside)
    names = page.locator(".chosen .card").evaluate_all("all => all.map((one) => one.dataset.id)")
    page.get_by_role("button", name="More like").click()
    results(page)
    assert asked(page)["like"] == names[:16]


def test_keyboard_only(page: Page) -> None:
    choosers: list[object] = []
    page.on(
        "filechooser", lambda chooser: choosers.append(chooser)
    )  # long before the key: the browser needs a moment to be told
    page.goto("/")
    page.locator(".grid .card").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for _ in range(40):  # to the first item
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.card .open')"):
            break
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    label = page.evaluate("document.activeElement.closest('.card').dataset.id")
    page.keyboard.press("Enter")
    results(page)
    assert asked(page)["id"] == [label]
    page.wait_for_function("() => !document.querySelector('.busy')")  # new results would take the focus away
    page.locator(".grid .card .open").nth(2).focus()
    liked = page.evaluate("document.activeElement.closest('.card').dataset.id")
    page.keyboard.press("l")
    expect(page.locator(".examples.like li")).to_have_count(1)
    assert asked(page)["like"] == [liked]
    page.wait_for_function("() => !document.querySelector('.busy')")
    page.locator(".grid .card .open").nth(1).focus()
    page.keyboard.press("d")
    expect(page.locator(".examples.unlike li")).to_have_count(1)
    page.locator(".crop").focus()
    page.keyboard.press("ArrowRight")  # makes a box
    page.keyboard.press("ArrowRight")  # moves it
    page.keyboard.press("Shift+ArrowDown")  # makes it taller
    page.keyboard.press("Enter")
    page.wait_for_url("**box=**")
    assert [float(v) for v in asked(page)["box"][0].split(",")] == pytest.approx([0.27, 0.25, 0.77, 0.77])
    page.keyboard.press("Escape")
    page.wait_for_function("() => !location.search.includes('box')")
    page.keyboard.press("/")
    expect(page.locator("#filter-field")).to_be_focused()
    page.locator("h1").click()
    page.keyboard.press("u")
    for _ in range(100):
        if choosers:
            break
        page.wait_for_timeout(100)
    assert choosers
    page.keyboard.press("2")
    page.locator(".map-facts").wait_for(timeout=60_000)
    page.wait_for_function("() => window.tophitMap")  # which listens to keys
    page.locator(".map canvas").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".hint")).to_be_visible()
    label = page.locator(".hint span").inner_text()
    page.keyboard.press("Enter")
    expect(page.locator(".asked-name")).to_contain_text(label)
    page.keyboard.press("3")
    page.locator(".worst-list > li").first.wait_for()


def test_names_for_a_screen_reader(page: Page) -> None:
    page.goto(BY_FIRST)
    results(page)
    nameless = page.evaluate(NAMELESS)
    assert nameless == []
    assert page.evaluate("[...document.images].every((one) => one.hasAttribute('alt'))")
    assert page.evaluate("document.documentElement.lang") == "en"
    expect(page.get_by_role("status").last).to_contain_text("24 results. First: class")
    expect(
        page.get_by_role(
            "button",
            name=re.compile(r"^Rank 1, class \d, (right|wrong), score [01]\.\d\d, chance \d+%\. Search from it$"),
        )
    ).to_be_visible()
    for role in ("banner", "navigation", "main"):
        expect(page.get_by_role(role)).to_have_count(1)


def test_on_a_phone_nothing_is_cut_off_and_a_finger_draws_a_box(browser: Browser, server: Server) -> None:
    context = browser.new_context(
        base_url=server.url, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    for path in ("/", BY_FIRST, f"{BY_FIRST}&compare=1", "/?view=map", "/?view=worst"):
        page.goto(path)
        page.locator("main :is(.card, .ranked, .map-facts, .strip)").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.goto(BY_FIRST)
    results(page)
    assert page.locator(".steer").first.evaluate("one => getComputedStyle(one).opacity") == "1"  # no hover on a phone
    expect(page.get_by_label("Order")).to_be_hidden()
    page.locator("summary").tap()
    expect(page.get_by_label("Order")).to_be_visible()
    area = page.locator(".crop").bounding_box()
    assert area
    touch = context.new_cdp_session(page)
    for kind, share in (("touchStart", 0.2), ("touchMove", 0.5), ("touchMove", 0.7), ("touchEnd", None)):
        spots = (
            [] if share is None else [{"x": area["x"] + share * area["width"], "y": area["y"] + share * area["height"]}]
        )
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": spots})
    page.wait_for_url("**box=**")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(browser: Browser, server: Server, scheme: str) -> None:
    context = browser.new_context(base_url=server.url, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(BY_FIRST)
    results(page)
    ratio = page.evaluate(LEAST_CONTRAST)
    assert ratio >= 4.5  # WCAG AA
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 24)"
    assert dark == (scheme == "dark")
    context.close()


def test_a_server_with_a_token_asks_for_it(browser: Browser, served: Place, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"read {READ}\n")
    server = Server(served.index, "--token-file", tmp_path / "tokens")
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto(BY_FIRST)
        page.get_by_label("Token", exact=True).last.fill("wrong")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        page.get_by_label("Token", exact=True).last.fill(READ)
        page.get_by_role("button", name="Continue").click()
        assert results(page)
        assert page.locator(".grid .card img").first.evaluate("one => one.decode().then(() => one.naturalWidth)") > 10
    finally:
        context.close()
        server.stop()
