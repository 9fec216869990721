"""What ``tophit plan`` says a run will take, beside what it then took: three settings, one after the other.

Every setting has a cache of its own, so that features and activations are computed as in a first run. On a machine that
others use, --processor compares processor time instead, which their load changes less.

python -m benchmarks.plan [--data icons] [--settings head last all] [--processor]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from tophit.advice import timing
from tophit.data.icons import icon_set
from tophit.recipe import make_recipe, merged, read_recipe
from tophit.training import train

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "head": ("head, 96 pixels, 20 epochs", {"embedder": {"trainable": "head", "size": 96}}),
    "last": (
        "last, 64 pixels, 2 views, 3 epochs",
        {"embedder": {"trainable": "last", "size": 64}, "augment": {"views": 2}, "schedule": {"epochs": 3}},
    ),
    "all": ("all, 64 pixels, 2 epochs", {"embedder": {"trainable": "all", "size": 64}, "schedule": {"epochs": 2}}),
}


def measure(data: str, fields: dict[str, Any]) -> tuple[float, float, float, dict[str, float]]:
    """Return the estimated and the actual seconds of a run, those of estimating, and the estimate's parts."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TOPHIT_CACHE"] = str(Path(folder) / "cache")
        if data == "icons":
            icon_set()
        recipe = make_recipe(merged(read_recipe("head", data=data).model_dump(mode="json"), {**fields, "log": []}))
        began = timing.clock()
        found = timing.estimate(recipe)
        planned = timing.clock()
        train(recipe, Path(folder) / "run")
        return found.seconds, timing.clock() - planned, planned - began, found.parts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="icons", help="a folder, a manifest, or icons")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--processor", action="store_true", help="compare processor seconds, not seconds")
    arguments = parser.parse_args()
    if arguments.processor:
        timing.clock = time.process_time
    print("| setting | estimated s | took s | estimated / took | estimating took s |")
    print("| --- | --- | --- | --- | --- |")
    for name in arguments.settings:
        title, fields = SETTINGS[name]
        estimated, took, estimating, parts = measure(arguments.data, fields)
        cells = f"{estimated:.0f} | {took:.0f} | {estimated / took:.2f} | {estimating:.0f}"
        print(f"| {title} | {cells} |", flush=True)
        shown = ", ".join(f"{part} {seconds:.0f}" for part, seconds in parts.items())
        print(f"<!-- {name}: {shown} -->", flush=True)


if __name__ == "__main__":
    main()
