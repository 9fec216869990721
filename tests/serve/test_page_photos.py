"""The page as people with photos use it: names, marks, details, phone, the map's names, what a lasso holds."""

import csv
from itertools import combinations
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, expect
from tests.serve.pages import BY_FIRST, FIRST, asked, results
from tests.serve.served import Place, Server

WHITE_MATS = """() => [...document.querySelectorAll(".card .open, .crop")]
    .filter((one) => getComputedStyle(one).backgroundColor === "rgb(255, 255, 255)").length"""
TO_THE_EDGE = """() => [...document.querySelectorAll(".grid .card")].slice(0, 6).every((card) => {
    const picture = card.querySelector("img");
    const [outer, inner] = [card, picture].map((one) => one.getBoundingClientRect().width);
    return outer - inner <= 2.1 && getComputedStyle(picture).objectFit === "cover";
})"""


def test_a_long_name_has_two_lines_and_is_told_whole(page: Page) -> None:
    long = "Oatly-Oat-Drink-Barista-Edition-1-Litre-Carton-Unsweetened"

    def rename(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        plain = answer.json()
        plain["queries"][0]["results"][0]["label"] = long
        route.fulfill(response=answer, json=plain)  # type: ignore[attr-defined]

    page.route("**/search", rename)
    page.goto(BY_FIRST)
    results(page)
    name = page.locator(".grid .card .name").first
    assert name.get_attribute("title") == long
    height, line = name.evaluate("one => [one.clientHeight, parseFloat(getComputedStyle(one).lineHeight)]")
    assert 1.9 * line < height < 2.2 * line


def test_confused_classes_with_long_names_keep_whole_words(page: Page) -> None:
    names = "Razer_BlackWidow_Stealth_2014_Keyboard", "Super_Mario_3D_World_Deluxe_Set"

    def rename(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        plain = answer.json()
        for one in plain.get("confusions", []):
            one["label"], one["taken_for"] = names
        route.fulfill(response=answer, json=plain)  # type: ignore[attr-defined]

    page.route("**/worst", rename)
    page.goto("/?view=worst")
    pair = page.locator(".confusions button").first
    expect(pair).to_contain_text(f"{names[0]} → {names[1]}")
    height, line = pair.evaluate("one => [one.clientHeight, parseFloat(getComputedStyle(one).lineHeight)]")
    assert height < 5 * line


def test_an_address_with_a_whole_path_shows_the_picture(page: Page, served: Place) -> None:
    page.goto(f"/?{urlencode({'id': str(served.images / FIRST)})}")
    results(page)
    expect(page.locator(".asked-name")).to_contain_text(FIRST)
    assert page.locator(".crop img").evaluate("one => one.decode().then(() => one.naturalWidth)") > 10
    assert asked(page)["id"] == [FIRST]


def test_an_item_that_is_not_there_leaves_no_broken_picture(page: Page) -> None:
    page.goto("/?id=no+such+item")
    expect(page.get_by_role("alert")).to_contain_text("no item 'no such item'")
    expect(page.locator(".asked img")).to_have_count(0)


def test_pictures_reach_the_edge_and_nothing_glares_in_the_dark(browser: Browser, server: Server) -> None:
    context = browser.new_context(base_url=server.url, color_scheme="dark")
    page = context.new_page()
    page.goto(BY_FIRST)
    results(page)
    page.wait_for_function(TO_THE_EDGE)  # once the pictures are there
    assert page.evaluate(WHITE_MATS) == 0
    context.close()


def test_right_and_wrong_results_are_marked(page: Page) -> None:
    page.goto(BY_FIRST)
    results(page)
    cards = page.locator(".grid .card")
    for number in range(8):
        word = "right" if "class 2" in cards.nth(number).locator(".name").inner_text() else "wrong"
        expect(cards.nth(number).locator(".mark")).to_have_text("✓" if word == "right" else "✗")


def test_details_show_the_whole_picture_and_the_metadata(page: Page) -> None:
    page.goto(BY_FIRST)
    found = results(page)
    page.locator(".grid .card .open").nth(1).focus()
    page.keyboard.press("i")
    details = page.get_by_role("dialog", name="Details")
    expect(details.locator(".item-facts")).to_contain_text(found[1])
    expect(details.locator(".item-facts")).to_contain_text("price")
    assert details.locator("img").evaluate("one => one.decode().then(() => one.naturalWidth)") > 10
    page.keyboard.press("ArrowLeft")
    expect(details.locator(".item-facts")).to_contain_text(found[0])
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    expect(page.locator(".grid .card")).to_have_count(24)
    page.locator(".grid .card").nth(2).hover()
    page.locator(".grid .card .inspect").nth(2).click()
    details.get_by_role("button", name="Search from it").click()
    page.wait_for_url("**id=**")
    assert asked(page)["id"] == [found[2]]


def test_on_a_phone_the_results_are_on_the_first_screen(browser: Browser, server: Server) -> None:
    context = browser.new_context(
        base_url=server.url, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(BY_FIRST)
    results(page)
    top = page.locator(".grid .card").first.evaluate("one => one.getBoundingClientRect().top")
    assert top < 340, "also below the note that nothing may be like this"
    expect(page.locator("#filter-field")).to_be_hidden()
    page.locator("summary").tap()
    expect(page.locator("#filter-field")).to_be_visible()
    small = page.locator(".crop").bounding_box()
    page.get_by_role("button", name="Enlarge").tap()
    expect(page.get_by_role("button", name="Smaller")).to_be_visible()
    large = page.locator(".crop").bounding_box()
    assert small
    assert large
    assert large["height"] > 2 * small["height"]
    page.goto(f"{BY_FIRST}&group=label")
    page.locator(".more-of").first.wait_for()
    wide = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert page.locator(".grid .caption").evaluate_all(wide) == 0, "rank, score, chance and the others fit into a card"
    page.locator(".more-of").first.tap()
    page.locator(".others li").first.wait_for()
    page.evaluate("document.querySelector('.others h3').textContent = 'Womens_Boat_Shoe_in_Linen_Oat_'.repeat(5)")
    assert page.locator(".others").evaluate_all(wide) == 0, "a long name of a group has several lines"
    page.evaluate("document.querySelector('.asked-name').textContent = 'a/long/path/without/spaces'.repeat(9)")
    assert page.locator(".query").evaluate("one => one.scrollWidth <= one.clientWidth")
    context.close()


def test_filters_are_above_the_fold_even_on_a_low_screen_with_examples(browser: Browser, server: Server) -> None:
    context = browser.new_context(base_url=server.url, viewport={"width": 1280, "height": 640})
    page = context.new_page()
    page.goto(f"{BY_FIRST}&like=class%201%2F1.png&unlike=class%203%2F1.png")
    page.locator(".examples li").first.wait_for()
    page.wait_for_function("() => document.querySelector('.crop img').complete")
    assert page.locator("#filter-field").evaluate("one => one.getBoundingClientRect().bottom") < 640
    context.close()


def test_compare_goes_from_the_other_model_to_the_served_one_and_counts_right_results(page: Page) -> None:
    page.goto(f"{BY_FIRST}&k=12&compare=1")
    sides = page.locator(".rankings > div")
    expect(sides.nth(0).locator("h3")).to_have_text("other compared with")
    expect(sides.nth(1).locator("h3")).to_contain_text("served here")
    for number in (0, 1):
        right = sides.nth(number).locator(".ranked.right")
        expect(sides.nth(number).locator(".side-facts")).to_contain_text(f"{right.count()} of 12 right")
        expect(sides.nth(number).locator("li .mark.right")).to_have_count(right.count())
        expect(sides.nth(number).locator("li .mark.wrong")).to_have_count(12 - right.count())


def open_map(page: Page) -> None:
    page.goto("/?view=map")
    page.locator(".map-facts").wait_for()
    page.wait_for_function("() => tophitMap.named().length > 0")


def covers(name: dict[str, float], x: float, y: float) -> bool:
    return abs(name["x"] - x) < name["width"] / 2 and abs(name["y"] - y) < 7


def test_the_map_writes_the_names_of_classes_that_do_not_touch(page: Page) -> None:
    open_map(page)
    placed = page.evaluate("tophitMap.named()")
    assert {one["text"] for one in placed} <= {f"class {number}" for number in range(8)}
    assert len(placed) >= 3
    for one, two in combinations(placed, 2):
        apart = abs(one["x"] - two["x"]) >= (one["width"] + two["width"]) / 2 or abs(one["y"] - two["y"]) >= 15
        assert apart, (one, two)
    expect(page.get_by_role("list", name="Classes").get_by_role("button")).to_have_count(8)
    expect(page.get_by_role("list", name="Classes")).to_contain_text("class 3 6")  # and how many there are
    points = page.evaluate("[...Array(48).keys()].map((row) => tophitMap.place(row))")
    hidden = [any(covers(name, x, y) for x, y in points[6 * name["label"] :][:6]) for name in placed]
    assert hidden.count(True) <= len(placed) / 2, "most names are beside the points that they name"


def test_a_class_is_searched_for_on_the_map(page: Page) -> None:
    open_map(page)
    page.get_by_label("Class", exact=True).fill("class 5")
    expect(page.get_by_text("1 of 8 classes marked")).to_be_visible()
    page.wait_for_function("() => tophitMap.named().map((one) => one.text).join() === 'class 5'")
    like = "([names, text]) => import('/page/legend.js').then(({ classesLike }) => classesLike(names, text))"
    assert page.evaluate(like, [["Boat_Shoe", "White_Shark"], "white sh"]) == [1], "as the map writes the name"
    page.get_by_label("Class", exact=True).fill("nothing such")
    expect(page.get_by_text("no such class")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("list", name="Classes").get_by_role("button").first.click()
    expect(page.get_by_text("1 of 8 classes marked")).to_be_visible()


# What a lasso around 415 items of 5 classes shows, row by row: the page's own part, with rows for items.
LASSO_OF_415 = """async () => {
    const [{ Lassoed, nearestFirst }, { html }, { render }] = await Promise.all(
        [import("/page/lassoed.js"), import("/page/html.js"), import("preact")]);
    const points = Float32Array.from({ length: 830 }, (_, place) => (place % 2 ? 0 : place / 830));
    const rows = nearestFirst([...Array(415).keys()], points);
    const labels = Uint16Array.from({ length: 415 }, (_, row) => (row < 300 ? 0 : 1 + (row % 4)));
    const item = (row) => ({ id: `item ${row}`, label: `class ${labels[row]}`, metadata: {}, thumbnail: null });
    const names = [0, 1, 2, 3, 4].map((number) => `class ${number}`);
    const load = async (wanted) => wanted.map(item);
    const main = document.querySelector("#main");
    render(html`<${Lassoed} rows=${rows} labels=${labels} names=${names} load=${load} onClear=${() => {}} />`, main);
}"""


def test_a_lasso_of_415_shows_its_classes_and_goes_on_from_the_middle(page: Page) -> None:
    page.goto("/")
    page.locator(".grid .card").first.wait_for()
    page.evaluate(LASSO_OF_415)
    expect(page.locator(".chosen h2")).to_contain_text("415 inside, of 5 classes")
    cards = page.locator(".chosen .card")
    expect(cards).to_have_count(60)
    shown = cards.evaluate_all("all => all.map((one) => Number(one.dataset.id.slice(5)))")
    assert sorted(shown) == list(range(177, 237)) or sorted(shown) == list(range(178, 238))  # around row 207
    assert shown[0] == 207
    page.get_by_role("button", name="Show 60 more; 355 are left").click()
    expect(cards).to_have_count(120)
    expect(page.get_by_role("button", name="Show 60 more; 295 are left")).to_be_visible()
    chips = page.get_by_role("list", name="Classes inside").get_by_role("button")
    expect(chips.first).to_have_text("class 0 300")  # the largest first
    chips.nth(1).click()
    expect(cards).to_have_count(29)
    expect(page.get_by_role("button", name="Show")).to_have_count(0)


def test_one_result_per_group_and_the_others_on_demand(page: Page) -> None:
    page.goto(f"{BY_FIRST}&k=6")
    results(page)
    page.get_by_label("One result per").select_option("label")
    page.wait_for_url("**group=label**")
    expect(page.get_by_role("heading", name="The nearest 6 by label")).to_be_visible()
    found = results(page)
    assert len({name.split("/")[0] for name in found}) == 6
    others = page.locator(".grid .others")
    expect(others).to_have_count(0)
    second = page.locator(".grid .card").nth(1)
    button = second.locator(".more-of")
    count = 4 if found[1].startswith("class 2/") else 5  # the query itself is left out
    expect(button).to_have_text(f"+{count}")
    button.click()
    expect(others.locator("li")).to_have_count(count)
    expect(others.locator("h3")).to_have_text(f"{count} more of label {found[1].split('/')[0]}")
    place = page.locator(".grid .card").nth(2).bounding_box()
    strip, own = others.bounding_box(), second.bounding_box()
    assert place
    assert strip
    assert own
    assert strip["y"] >= own["y"] + own["height"]  # below the whole row, whose other cards stay where they are
    assert abs(place["y"] - own["y"]) < 4  # a card that is pointed at rises a little
    others.locator("button").first.click()
    details = page.get_by_role("dialog", name="Details")
    expect(details.locator(".item-facts")).to_contain_text(found[1].split("/")[0])
    page.keyboard.press("Escape")
    second.locator(".open").focus()
    page.keyboard.press("o")
    expect(others).to_have_count(0)


def test_details_narrow_the_search_to_a_value(page: Page) -> None:
    page.goto(BY_FIRST)
    results(page)
    page.locator(".grid .card .open").nth(1).focus()
    page.keyboard.press("i")
    page.get_by_role("button", name="Only items with number n").click()
    expect(page.locator(".chip")).to_have_count(1)
    page.wait_for_function("() => [7, 8].includes(document.querySelectorAll('.grid .card').length)")
    numbers = {name.split("/")[1] for name in results(page)}
    assert len(numbers) == 1


def test_the_results_are_saved_as_csv(page: Page) -> None:
    page.goto(f"{BY_FIRST}&k=5&group=label")
    found = results(page)
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save as CSV").click()
    assert saving.value.suggested_filename == "results.csv"
    with open(saving.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == found
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert {"score", "label", "price", "others"} <= rows[0].keys()
