"""How long a command takes from a cold start: wrong use, one search, the facts of an index, a list of runs, a report.

    python -m benchmarks.start [--items 100000] [--rounds 7]

The index holds vectors of 512 numbers by EfficientNet-Lite0 with a head, one of a real picture and the others random.
Commands take turns, each in a process of its own; the table has their medians, and whether torch was imported.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from tophit.data.manifest import ImageRow

_CODE = """
import sys
from tophit.cli import main
try:
    main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""


def make_index(folder: Path, items: int) -> tuple[Path, Path]:
    """Return an index of so many items and a picture to search by."""
    from tophit.models import build_embedder
    from tophit.models.onnx_export import cached_graph
    from tophit.search.catalogue import build_catalogue

    picture = folder / "query.jpg"
    Image.effect_noise((500, 375), 60).convert("RGB").save(picture)
    embedder = build_embedder("efficientnet-lite0", "pretrained", dim=512)
    cached_graph(embedder)  # as indexing 500 images or more does
    catalogue, _ = build_catalogue(embedder, [ImageRow(picture, "noise")], folder / "index")
    with catalogue:
        generator = np.random.default_rng(0)
        for start in range(0, items, 10_000):
            names = [f"/images/{number}.jpg" for number in range(start, min(start + 10_000, items))]
            vectors = generator.normal(size=(len(names), 512)).astype(np.float32)
            catalogue.index.upsert(names, vectors, [{"path": name, "label": name[-6]} for name in names])
        catalogue.index.compact()
    return folder / "index", picture


def make_run(folder: Path) -> Path:
    """Return a finished run of a small network on 12 classes of 8 pictures."""
    import tophit

    for number in range(96):
        picture = folder / "pictures" / f"class {number % 12}" / f"{number}.jpg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((64, 64), 5 + 8 * (number % 12)).convert("RGB").save(picture)
    small = {"embedder": {"backbone": "small", "weights": "random", "size": 32}, "schedule": {"epochs": 1}}
    tophit.train(folder / "pictures", recipe="head", out=folder / "run", **small)
    return folder / "run"


def run(arguments: list[str]) -> tuple[float, bool]:
    """Return the seconds of a command, and whether it imported torch."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *arguments], capture_output=True, text=True, env=dict(os.environ)
    )
    return time.perf_counter() - start, done.stderr.rstrip().endswith("True")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        index, picture = make_index(Path(place), given.items)
        trained = make_run(Path(place))
        commands = {
            "search without anything": ["search", str(index)],
            "search of a folder that is not there": ["search", "nowhere", "a.jpg"],
            "train with a wrong path": ["train", "head", "--data", "nowhere", "--run", "x"],
            "compare with a wrong path": ["compare", "--preset", "quick", "--data", "nowhere", "--out", f"{place}/x"],
            "report of a run that is not there": ["report", "nowhere"],
            "export of a model that is not there": ["export", "nowhere", "--out", "x.onnx"],
            "evaluate a model that is not there": ["evaluate", "nowhere", "--data", place],
            "a recipe explained": ["train", "head", "--explain", "--set", "schedule.epochs=7"],
            "search by an image": ["search", str(index), str(picture)],
            "search by an id": ["search", str(index), "--id", "/images/7.jpg"],
            "items info": ["items", "info", str(index)],
            "runs": ["runs", place],
            "report of a finished run": ["report", str(trained)],
            "the same report, when nothing has changed": ["report", str(trained)],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        heavy: dict[str, bool] = {}
        for _ in range(given.rounds):
            (trained / "report.html").unlink(missing_ok=True)
            for name, arguments in commands.items():
                took, heavy[name] = run(arguments)
                seconds[name].append(took)
    print(f"{given.items:,} items, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    print("| command | seconds, median | least | torch imported |\n| --- | --- | --- | --- |")
    for name, times in seconds.items():
        imported = "yes" if heavy[name] else "no"
        print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} | {imported} |")


if __name__ == "__main__":
    main()
