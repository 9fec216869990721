"""The page in headless Chromium: searching, by mouse, against a real server."""

import json
import re

import pytest
from playwright.sync_api import Page, expect
from tests.serve.pages import BY_FIRST, FIRST, asked, give, results
from tests.serve.served import Place, encoded

from conftest import draw_picture


def test_it_begins_with_some_items_and_a_click_searches_from_one(page: Page) -> None:
    page.goto("/")
    sample = page.locator(".grid[aria-label='Some items of the index'] .card")
    expect(sample).to_have_count(48)
    sample.nth(10).locator(".open").click()
    found = results(page)
    assert len(found) == 24
    first = page.locator(".grid .card").first
    expect(first.locator(".name")).to_contain_text("class")
    assert re.fullmatch(r"[01]\.\d{3}", first.locator(".score").inner_text())
    images = page.locator(".grid .card img")
    assert images.first.evaluate("one => one.decode().then(() => one.naturalWidth)") > 10
    first.locator(".open").click()  # and on from a result
    expect(page.locator(".asked-name")).to_contain_text(found[0])
    assert asked(page)["id"] == [found[0]]
    page.go_back()
    page.wait_for_function("name => document.querySelector('.grid .card')?.dataset.id === name", arg=found[0])
    assert results(page) == found


def test_an_address_with_an_unknown_id_says_so_and_leads_back(page: Page) -> None:
    page.goto("/?id=nobody.png")
    expect(page.locator(".found h1")).to_have_text("Nothing to show")
    expect(page.locator(".found")).to_contain_text("nobody.png")
    page.locator(".found").get_by_role("button", name="Start over").click()
    expect(page.locator(".grid .card")).to_have_count(48)


@pytest.mark.parametrize("way", ["drop", "paste", "pick"])
def test_a_picture_by_drop_paste_or_choice(page: Page, served: Place, way: str) -> None:
    data = (served.images / FIRST).read_bytes()
    page.goto("/")
    page.locator(".grid .card").first.wait_for()
    if way == "pick":
        page.locator("#pick").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": data})
    else:
        if way == "drop":
            give(page, "dragover", "a.png", data)
            expect(page.locator(".dropping")).to_be_visible()
        give(page, way, "a.png", data)
    assert results(page)[0] == FIRST
    expect(page.locator(".dropping")).to_be_hidden()
    name = asked(page)["upload"][0]
    page.reload()  # the state is in the address
    assert results(page)[0] == FIRST
    assert asked(page)["upload"] == [name]


def test_two_pictures_are_one_query_and_a_text_is_none(page: Page) -> None:
    page.goto("/")
    files = [{"name": f"{n}.png", "mimeType": "image/png", "buffer": encoded(draw_picture(n, 70))} for n in (1, 2)]
    page.locator("#pick").set_input_files(files)
    assert results(page)
    expect(page.locator(".several img")).to_have_count(2)
    assert len(asked(page)["upload"]) == 2
    page.locator("#pick").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"hello"})
    expect(page.get_by_role("alert")).to_contain_text("not a picture")
    page.locator("#pick").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"hello"})
    expect(page.get_by_role("alert")).to_contain_text("not a JPEG, PNG, WebP")


def test_a_box_searches_by_a_part_and_a_click_takes_it_away(page: Page) -> None:
    page.goto(BY_FIRST)
    whole = results(page)
    area = page.locator(".crop").bounding_box()
    assert area
    with page.expect_response("**/search") as told:
        page.mouse.move(area["x"] + 0.3 * area["width"], area["y"] + 0.3 * area["height"])
        page.mouse.down()
        page.mouse.move(area["x"] + 0.6 * area["width"], area["y"] + 0.5 * area["height"], steps=4)
        page.mouse.move(area["x"] + 0.8 * area["width"], area["y"] + 0.7 * area["height"], steps=4)
        page.mouse.up()
    box = json.loads(told.value.request.post_data or "")["box"]
    assert box == pytest.approx([0.3, 0.3, 0.8, 0.7], abs=0.02)
    expect(page.locator(".box")).to_be_visible()
    page.wait_for_function(
        "name => ![undefined, name].includes(document.querySelector('.grid .card')?.dataset.id)", arg=whole[0]
    )
    page.reload()
    expect(page.locator(".box")).to_be_visible()
    page.get_by_role("button", name="Use the whole picture").click()
    page.wait_for_function("name => document.querySelector('.grid .card')?.dataset.id === name", arg=whole[0])
    expect(page.locator(".box")).to_have_count(0)


def test_like_and_dislike_steer(page: Page) -> None:
    page.goto(BY_FIRST)
    before = results(page)
    with page.expect_response("**/search") as told:
        page.locator(".card").nth(3).hover()
        page.locator(".card").nth(3).get_by_role("button", name="More like").click()
    assert json.loads(told.value.request.post_data or "")["like"] == [before[3]]
    expect(page.locator(f".grid .card[data-id='{before[3]}']")).to_have_count(0)  # an example is no result
    page.wait_for_function("() => !document.querySelector('.busy')")
    second = results(page)[1]
    page.locator(".grid .card").nth(1).hover()
    page.locator(".grid .card").nth(1).get_by_role("button", name="Less like").click()
    expect(page.locator(".examples.like li")).to_have_count(1)
    expect(page.locator(".examples.unlike li")).to_have_count(1)
    assert (asked(page)["like"], asked(page)["unlike"]) == ([before[3]], [second])
    page.locator(".examples.unlike button").click()
    page.locator(".examples.like button").click()
    expect(page.locator(".examples")).to_have_count(0)
    page.wait_for_function("name => document.querySelector('.grid .card')?.dataset.id === name", arg=before[0])
    assert results(page) == before


def test_filters_by_value_and_by_range(page: Page) -> None:
    page.goto(BY_FIRST)
    results(page)
    page.get_by_role("combobox", name="Filter").select_option("label")
    for value in ("class 1", "class 2"):
        page.get_by_label("Value of label").fill(value)
        page.get_by_role("button", name="Add").click()
    expect(page.locator(".chip")).to_contain_text("label in class 1 or class 2")
    expect(page.locator(".grid .card")).to_have_count(11)
    page.get_by_role("combobox", name="Filter").select_option("price")
    page.get_by_label("Comparison").select_option("lt")
    page.get_by_label("Value of price").fill("13")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".grid .card")).to_have_count(3)
    assert json.loads(asked(page)["where"][0]) == {"label": ["class 1", "class 2"], "price": {"lt": 13}}
    page.reload()
    expect(page.locator(".chip")).to_have_count(2)
    page.get_by_role("button", name="Remove the filter label").click()
    page.get_by_role("button", name="Remove the filter price").click()
    expect(page.locator(".grid .card")).to_have_count(24)


def test_number_of_results_and_order(page: Page) -> None:
    page.goto(BY_FIRST)
    results(page)
    page.get_by_role("spinbutton", name="Results").fill("7")
    page.get_by_role("spinbutton", name="Results").press("Enter")
    expect(page.locator(".grid .card")).to_have_count(7)
    with page.expect_response("**/search") as told:
        page.get_by_label("Order").select_option("alpha-qe")
    assert json.loads(told.value.request.post_data or "")["rerank"] == ["alpha-qe"]
    assert asked(page) == {"id": [FIRST], "k": ["7"], "rerank": ["alpha-qe"]}
