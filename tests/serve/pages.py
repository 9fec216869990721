"""The page in headless Chromium: fixtures and helpers of its tests."""

import base64
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.serve.served import Place, Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
FIRST = "class 2/3.png"
BY_FIRST = "/?id=class%202%2F3.png"


# What has no name that a screen reader could say.
NAMELESS = """() => {
    const named = (one) => one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length;
    const all = [...document.querySelectorAll("button, a, input, select, canvas, [role]")];
    return all.filter((one) => !named(one) && one.getAttribute("role") !== "status").map((one) => one.outerHTML);
}"""
# The least contrast of a text with its ground, as WCAG computes it.
LEAST_CONTRAST = """() => {
    const channel = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = (text) => {
        const scale = text.startsWith("color(") ? 1 : 255;
        const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((v) => channel(v / scale));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (one) => {
        const colour = getComputedStyle(one).backgroundColor;
        return /, 0\\)$/.test(colour) && one.parentElement ? ground(one.parentElement) : colour;
    };
    const ratio = (one) => {
        const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
    };
    return Math.min(...[...document.querySelectorAll(".muted, .name, .score, h1, .chip, label, nav a")].map(ratio));
}"""
DISTANCE = """() => {
    const [[a, b], [c, d]] = [tophitMap.place(17), tophitMap.place(40)];
    return Math.hypot(a - c, b - d);
}"""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("TOPHIT_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.fail("There is no Chromium; make browser installs it.")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # a busy machine is no failure
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def server(served: Place) -> Iterator[Server]:
    made = Server(served.index, "--against", served.other)
    yield made
    made.stop()


@pytest.fixture
def page(browser: "Browser", server: Server) -> "Iterator[Page]":
    """A page on which no script may fail and no other host be asked."""
    context = browser.new_context(base_url=server.url, viewport={"width": 1200, "height": 900})
    made = context.new_page()
    made.set_default_timeout(60_000)
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    made.on("request", lambda asked: None if asked.url.startswith((server.url, "blob:")) else wrong.append(asked.url))
    yield made
    context.close()
    assert wrong == []


def results(page: "Page") -> list[str]:
    """The ids of the results, once they are there."""
    page.locator(".grid[aria-label='Results'] .card").first.wait_for()
    return page.locator(".grid[aria-label='Results'] .card").evaluate_all("all => all.map(one => one.dataset.id)")


def asked(page: "Page") -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def give(page: "Page", event: str, name: str, data: bytes) -> None:
    """Let the page see a drop or a paste of a file, as a browser would tell it."""
    page.evaluate(
        """([event, name, text]) => {
            const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type: "image/png" }));
            const made = event === "paste"
                ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true })
                : new DragEvent(event, { dataTransfer: transfer, bubbles: true, cancelable: true });
            document.body.dispatchEvent(made);
        }""",
        [event, name, base64.b64encode(data).decode()],
    )
