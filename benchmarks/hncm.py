"""Compare the readings of hard negative class mining (PROFS) by heads on a feature file, over several seeds.

    python -m benchmarks.hncm features.npz

Every row has the same budget: batches of 64 x 2 images, the best of every fifth epoch (by MAP@R) on validation classes,
a share of the training classes that is held out. Test classes play no part. The intervals are 95% for the mean over
seeds (Student's t). ``least``, ``most`` and ``unused`` are the mean use of classes in the last whole projection.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.seeds import STUDENT_95, interval
from tophit.recipe import make_recipe
from tophit.training import train

METRICS = ("recall@1", "MAP@R")
USES = {"least": "class_use_min", "most": "class_use_max", "unused": "classes_unused"}
READINGS = (False, "chain", "seeds", "pool")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a feature file, or anything that tophit train --data takes")
    parser.add_argument("--losses", nargs="+", default=("triplet", "contrastive"))
    parser.add_argument("--seeds", type=int, default=3, choices=sorted(STUDENT_95), help="runs of each row")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    columns = ("loss, hncm", *METRICS, *USES)
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)
    for loss in arguments.losses:
        for hncm in READINGS:
            runs = [measure(arguments, loss, hncm, seed) for seed in range(arguments.seeds)]
            cells = [interval([100 * run[metric] for run in runs]) for metric in METRICS]
            cells += [f"{statistics.mean(run[use] for run in runs):.0f}" for use in USES.values()]
            print(f"| {loss}, {hncm or 'off'} | " + " | ".join(cells) + " |", flush=True)


def measure(arguments: argparse.Namespace, loss: str, hncm: bool | str, seed: int) -> dict[str, float]:
    """Return the metrics on validation classes of one run, and the use of classes in its last whole projection."""
    recipe = {
        "seed": seed,
        "data": {"manifest": arguments.data},
        "embedder": {"trainable": "head", "dim": 128},
        "loss": {"name": loss},
        "method": {"name": "projection", "hncm": hncm},
        "batches": {"sampler": "balanced", "classes": 64, "per_class": 2},
        "optimizer": {"head": {"lr": arguments.lr}},
        "schedule": {"epochs": arguments.epochs},
        "evaluation": {"every": 5},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        train(make_recipe(recipe), folder)
        log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in log if "classes_unused" in line][-1]
    best = max((line for line in log if "validation/MAP@R" in line), key=lambda line: line["validation/MAP@R"])
    return {**{metric: best[f"validation/{metric}"] for metric in METRICS}, **{use: last[use] for use in USES.values()}}


if __name__ == "__main__":
    main()
