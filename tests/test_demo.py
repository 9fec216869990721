"""The demo: quickly with a head on cached features, and (slow) as the user gets it."""

import io
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from tophit.demo import run_demo
from tophit.progress import TerminalView
from tophit.recipe import read_recipe


def check_results(folder: Path, printed: str) -> None:
    before = json.loads((folder / "before.json").read_text())
    result = json.loads((folder / "result.json").read_text())
    for name, measured in before.items():
        assert name in printed
        assert result["intervals"]["recall@1"][0] > measured["intervals"]["recall@1"][1], name
    for word in ("trained", "recall@1", "precision@5", "MAP@R", "ndcg@8", "tophit train head --data", "tophit index"):
        assert word in printed
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.width > 1000


@pytest.mark.usefixtures("icons")
def test_the_demo_goes_from_fonts_to_a_search_and_reuses_what_is_there(tmp_path: Path) -> None:
    recipe = read_recipe("icons", ["embedder.trainable=head", "schedule.epochs=15", "optimizer.head.lr=3e-3"])
    times = []
    for _ in range(2):
        output = io.StringIO()
        console = Console(file=output, width=120)
        run_demo(recipe, tmp_path / "demo", console, TerminalView(console))
        check_results(tmp_path / "demo", output.getvalue())
        times.append((tmp_path / "demo" / "best" / "weights.safetensors").stat().st_mtime_ns)
    assert times[0] == times[1]
    assert "reusing the finished run" in output.getvalue()


@pytest.mark.slow
def test_the_demo_as_the_user_gets_it(tmp_path: Path, tophit: Callable) -> None:
    """Must show 2: above the pretrained backbone by a margin far outside the 95% interval."""
    printed = tophit("demo", "--no-serve", "--out", tmp_path / "demo", timeout=1200).stdout
    check_results(tmp_path / "demo", printed)
    before = json.loads((tmp_path / "demo" / "before.json").read_text())["pretrained backbone, no head"]
    trained = json.loads((tmp_path / "demo" / "result.json").read_text())["test"]["recall@1"]
    low, high = before["intervals"]["recall@1"]
    assert trained - before["metrics"]["recall@1"] > 2 * (high - low)


@pytest.mark.slow
def test_the_demo_ends_by_serving_its_index_until_told_to_stop(tmp_path: Path, tophit: Callable) -> None:
    """Must show 4; what was made before is reused, so a second demo serves within a minute."""
    tophit("demo", "--no-serve", "--out", tmp_path / "demo", timeout=1200)
    command = [sys.executable, "-m", "tophit.cli", "demo", "--out", str(tmp_path / "demo"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        address = next(found.group() for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
        with urllib.request.urlopen(f"{address}about") as answer:
            about = json.load(answer)
        assert (about["items"], about["against"], about["run"]["name"]) == (2984, "index-before", "demo")
        process.terminate()
        assert process.wait(60) == 0
