"""What a report of many queries takes in memory and time, and how smooth its map is.

    python -m benchmarks.report                    # 60,000 queries, 10,000 points on the map: some minutes
    python -m benchmarks.report --queries 15000    # the same, smaller

A head is trained for an epoch on generated features, so that there is a run; then the command ``tophit report`` runs
in a process of its own, whose peak memory is printed beside that of a process which only holds the features. Chromium
opens the page from the disk; the time from one frame to the next is taken while the pointer moves over the map (images
appear) and while the map is dragged.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from tophit.progress import Progress, View

DIM = 128
PICTURES = 64  # that the images share, as links to the same files
FLAGS = ["--no-sandbox", "--disable-gpu"]
RECORD = """() => {
    window.frames_taken = [];
    let before = performance.now();
    const step = (now) => {
        window.frames_taken.push(now - before);
        before = now;
        window.frame = requestAnimationFrame(step);
    };
    window.frame = requestAnimationFrame(step);
}"""


def make_run(folder: Path, queries: int) -> Path:
    """Write generated features with tiny pictures, train a head on a few of them, and return the run."""
    from tophit.recipe import make_recipe
    from tophit.training import train

    random = np.random.default_rng(0)
    classes = np.concatenate([np.repeat(np.arange(40), 25), 40 + random.integers(0, queries // 6, queries)])
    centres = random.normal(size=(classes.max() + 1, DIM)).astype(np.float32)
    features = centres[classes] + 1.1 * random.normal(size=(len(classes), DIM)).astype(np.float32)
    names = np.array([f"images/{number}.png" for number in range(len(classes))])
    split = np.where(classes < 40, "train", "test")
    (folder / "images").mkdir()
    for number in range(PICTURES):
        Image.fromarray(random.integers(0, 255, (32, 32, 3), np.uint8)).save(folder / f"{number}.png")
    for number, name in enumerate(names):
        os.link(folder / f"{number % PICTURES}.png", folder / name)
    np.savez(folder / "features.npz", features=features, labels=classes, names=names, split=split)
    recipe = make_recipe(
        {
            "data": {"manifest": str(folder / "features.npz")},
            "embedder": {"trainable": "head", "dim": DIM},
            "schedule": {"epochs": 1},
            "evaluation": {"test": False, "before": False},
        }
    )
    train(recipe, folder / "run")
    return folder / "run"


class Timed(View):
    """Prints when each part of a report began."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def note(self, message: str) -> None:
        """Print a part's name and when it began."""
        print(f"  after {time.monotonic() - self.begun:.0f} s: {message}", flush=True)

    def track(self, description: str) -> Progress:
        """Print the same of what would have a bar."""
        self.note(description)
        return super().track(description)


def peak_of(code: str) -> tuple[float, float]:
    """Run Python code in a process of its own; return its peak memory in GB and its seconds."""
    begun = time.monotonic()
    told = f"{code}\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    *said, peak = done.stdout.strip().splitlines()
    print("\n".join(said), end="\n" if said else "")
    return int(peak) * 1024 / 1e9, time.monotonic() - begun


def frames(page_file: Path) -> None:
    """Print the times between frames on the map."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        begun = time.monotonic()
        page.goto(page_file.as_uri())
        page.locator("html[data-ready]").wait_for(state="attached", timeout=120_000)
        print(f"Chromium shows the page after {time.monotonic() - begun:.1f} s")
        canvas = page.locator("#map canvas")
        canvas.scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        area = canvas.bounding_box()
        assert area is not None
        middle = area["x"] + area["width"] / 2, area["y"] + area["height"] / 2
        for what, pressed in (("at rest", None), ("hovering", False), ("dragging", True)):
            page.mouse.move(*middle)
            if pressed:
                page.mouse.down()
            page.evaluate(RECORD)
            until, number = time.monotonic() + 5, 0
            while time.monotonic() < until:
                angle, number = number / 9, number + 1
                if pressed is None:
                    page.wait_for_timeout(50)
                else:
                    page.mouse.move(middle[0] + 160 * np.cos(angle), middle[1] + 160 * np.sin(angle))
            page.mouse.up()
            taken = page.evaluate("() => { cancelAnimationFrame(window.frame); return window.frames_taken.slice(1); }")
            late = float(np.quantile(taken, 0.95))
            print(
                f"{what}: {len(taken)} frames, median {statistics.median(taken):.1f} ms, 95th percentile {late:.1f} ms"
            )
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=60_000)
    parser.add_argument("--page", type=Path, help="Measure the frames of this report only.")
    given = parser.parse_args()
    if given.page is not None:
        frames(given.page.absolute())
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = make_run(folder, given.queries)
        import_only = "import tophit.reporting.make\nfrom tophit.data.folders import open_data\n"
        least, _ = peak_of(f"{import_only}open_data({str(folder / 'features.npz')!r})")
        timed = "from benchmarks.report import Timed\n"
        most, seconds = peak_of(f"{import_only}{timed}tophit.reporting.make.make_report({str(run)!r}, view=Timed())")
        page = run / "report.html"
        beside = sum(path.stat().st_size for path in (run / "report_files").rglob("*") if path.is_file())
        print(f"{given.queries:,} queries of {DIM} dimensions: {seconds:.0f} s, peak memory {most:.2f} GB")
        print(f"of which {least:.2f} GB are the libraries and the features; the memory budget is 1.07 GB")
        print(f"the page has {page.stat().st_size / 1e6:.1f} MB, the folder beside it {beside / 1e6:.1f} MB")
        print(f"this machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        frames(page)


if __name__ == "__main__":
    main()
