"""Draw the pictures of the page that the README shows.

tophit demo --port 8000, then in another terminal: python docs/images/screenshots.py http://127.0.0.1:8000
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

HERE = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
GIFT = "/?id=gift%2Fremix-line.png"
STEERED = "&like=gift%2Fcodicons-regular.png&unlike=briefcase%2Feva-outline.png&unlike=school%2Ffont-awesome-solid.png"
SHOTS = {
    "search": (GIFT, "light", False),
    "search-dark": (GIFT + STEERED, "dark", False),
    "compare-dark": ("/?id=gift%2Feva-outline.png&compare=1&k=12", "dark", False),
    "map": ("/?view=map", "light", False),
    "worst": ("/?view=worst", "light", False),
    "phone": (GIFT, "light", True),
}


def point_at(page: Page) -> None:
    """Let the map show an item."""
    area = page.locator("canvas").bounding_box()
    assert area is not None
    x, y = page.evaluate("tophitMap.place(1500)")
    page.mouse.move(area["x"] + x, area["y"] + y)
    page.locator(".hint img").wait_for()


def open_screen(browser: Browser, scheme: str, phone: bool, size: tuple[int, int]) -> BrowserContext:
    """Return a phone's screen, or a desktop's of this size."""
    width, height = (390, 780) if phone else size
    return browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
        is_mobile=phone,
        has_touch=phone,
        device_scale_factor=2 if phone else 1,
    )


def main() -> None:
    """Draw all, or those named after the address."""
    address, *wanted = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name in wanted or SHOTS:
            path, scheme, phone = SHOTS[name]
            context = open_screen(browser, scheme, phone, (1360, 850))
            page = context.new_page()
            page.goto(address + path)
            page.locator("main :is(.card, .ranked, .map-facts, .strip)").first.wait_for(timeout=120_000)
            page.wait_for_load_state("networkidle")
            if name == "map":
                point_at(page)
            page.wait_for_timeout(700)
            page.screenshot(path=HERE / f"{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
