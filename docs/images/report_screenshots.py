"""Draw the pictures of the report that the docs show, from a report of two models.

tophit report runs/top-k --against runs/multi-proxy, then: python docs/images/report_screenshots.py REPORT.html
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from screenshots import FLAGS, HERE, open_screen

SHOTS = {  # the part that is shown, the colours, whether on a phone
    "report": ("report", "light", False),
    "report-galleries": ("galleries", "light", False),
    "report-queries": ("queries", "dark", False),
    "report-map": ("map", "light", False),
    "report-phone": ("report", "light", True),
}


def prepare(page: Page, name: str) -> None:
    """Open what the picture is of."""
    if name == "report-queries":
        page.get_by_label("Sort by").select_option("won")
        page.locator("#queries .query-row").nth(1).click()
    if name == "report-map":
        canvas = page.locator("#map canvas")
        area = canvas.bounding_box()
        assert area is not None
        x, y = page.evaluate("tophitMap.place(1500)")
        page.mouse.move(area["x"] + x, area["y"] + y)
        page.locator("#map .hint img").wait_for()


def main() -> None:
    """Draw all, or those named after the file."""
    report, *wanted = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name in wanted or SHOTS:
            part, scheme, phone = SHOTS[name]
            context = open_screen(browser, scheme, phone, (1280, 860))
            page = context.new_page()
            page.goto(Path(report).absolute().as_uri())
            page.locator("html[data-ready]").wait_for(state="attached", timeout=120_000)
            page.evaluate("part => document.getElementById(part).scrollIntoView()", part)
            prepare(page, name)
            page.wait_for_timeout(700)
            path = HERE / f"{name}.png"
            page.screenshot(path=path)
            with Image.open(path) as shot:
                shot.convert("RGB").quantize(192).save(path, optimize=True)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
