"""A small run with planted label problems, another to stand against, and the page of both; for the report's tests."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CLASSES, IMAGES = 12, 8
MISLABELLED = "class 10/planted-error.png"  # shows class 7
DUPLICATE = "class 11/planted-copy.png"  # is an image of training


@dataclass(frozen=True)
class Reported:
    """A finished run, another one on the same data, and the folder of the images."""

    run: Path
    other: Path
    images: Path


def with_after(marks: list[str], relevant: int) -> list[str]:
    """Call what is wrong 'after' once every right one has been found."""
    return [
        "after" if mark == "wrong" and marks[:n].count("right") == relevant else mark for n, mark in enumerate(marks)
    ]


def draw_set(folder: Path) -> Path:
    """Draw classes to learn and others to test; plant an image with a wrong label and one that was learned."""
    from conftest import draw_picture
    from tophit.data.manifest import ImageRow, Manifest, write_manifest

    rows = []
    for kind in range(CLASSES):
        split = "train" if kind < CLASSES // 2 else "test"
        (folder / f"class {kind}").mkdir(parents=True)
        for number in range(IMAGES):
            path = folder / f"class {kind}" / f"{number}.png"
            draw_picture(kind, number, side=48).save(path)
            rows.append(ImageRow(path, f"class {kind}", split))
    draw_picture(7, 99, side=48).save(folder / MISLABELLED)
    shutil.copy(folder / "class 1" / "3.png", folder / DUPLICATE)
    rows += [ImageRow(folder / name, name.split("/")[0], "test") for name in (MISLABELLED, DUPLICATE)]
    write_manifest(Manifest(tuple(rows)), folder / "manifest.csv")
    return folder / "manifest.csv"


def small_recipe(manifest: Path, loss: dict[str, Any], epochs: int, seed: int = 0) -> Any:
    from tophit.recipe import make_recipe

    return make_recipe(
        {
            "seed": seed,
            "data": {"manifest": str(manifest), "validation_share": 0.34},
            "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32, "trainable": "all"},
            "loss": loss,
            "batches": {"classes": 3, "per_class": 4},
            "augment": {"scale": [0.8, 1.0]},
            "optimizer": {"backbone": {"lr": 3e-3}, "head": {"lr": 3e-3}},
            "schedule": {"epochs": epochs},
        }
    )


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    from tophit.training import train

    folder = tmp_path_factory.mktemp("reported")
    manifest = draw_set(folder / "images")
    train(small_recipe(manifest, {"name": "topk-precision", "k": 3}, 2), folder / "first run")
    proxies = {"name": "multi-proxy-anchor", "proxies_per_class": 2}
    train(small_recipe(manifest, proxies, 1, seed=1), folder / "<b>other")
    return Reported(folder / "first run", folder / "<b>other", folder / "images")


@pytest.fixture(scope="session")
def report_page(reported: Reported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the run against the other, by the command; ``printed.txt`` beside it is what that said."""
    out = tmp_path_factory.mktemp("report page") / "two.html"
    arguments = ["report", reported.run, "--against", reported.other, "--out", out, "--figures", out.parent / "figures"]
    done = subprocess.run(
        [sys.executable, "-m", "tophit.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    (out.parent / "printed.txt").write_text(done.stdout)
    return out


@pytest.fixture(scope="session")
def single_page(reported: Reported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the run with proxies alone."""
    from tophit.reporting.make import make_report

    out = tmp_path_factory.mktemp("single page") / "report.html"
    make_report(reported.other, out=out)
    return out


class Opened:
    """Opens reports from the disk; remembers what went wrong or was asked for over a network."""

    def __init__(self, browser: "Browser") -> None:
        self.browser = browser
        self.wrong: list[str] = []
        self.contexts: list[Any] = []

    def __call__(
        self, path: Path, width: int = 1200, height: int = 900, folded: bool = False, **options: Any
    ) -> "Page":
        """Open a report, all of its parts unfolded unless they are to stay ``folded``."""
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on(
            "request", lambda asked: None if asked.url.startswith(("file:", "data:")) else self.wrong.append(asked.url)
        )
        page.goto(path.as_uri())
        page.locator("html[data-ready]").wait_for(state="attached")
        if not folded:
            page.evaluate("for (const part of document.querySelectorAll('details.part')) part.open = true")
        return page


@pytest.fixture
def opened(browser: "Browser") -> Iterator[Opened]:
    made = Opened(browser)
    yield made
    for context in made.contexts:
        context.close()
    assert made.wrong == []
