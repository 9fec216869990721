"""Train a head on the icon set with each ranking loss, over several seeds, and print recall@1 and MAP@R.

    python -m benchmarks.ranking_losses_icons            every loss
    python -m benchmarks.ranking_losses_icons --merge 3  the PNP paper's robustness experiment

Every run has the same recipe but for the loss: 20 epochs on cached features of the frozen backbone, batches of 32
classes x 4 images, the epoch chosen on validation classes, measured on test classes that training never saw.
The intervals are 95% for the mean over seeds (Student's t).
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.seeds import STUDENT_95, interval
from tophit.recipe import make_recipe
from tophit.training import train

LOSSES: dict[str, dict[str, Any]] = {
    "PNP-O": {"name": "pnp", "variant": "O"},
    "PNP-Iu": {"name": "pnp", "variant": "Iu"},
    "PNP-Ib": {"name": "pnp", "variant": "Ib"},
    "PNP-Ds": {"name": "pnp", "variant": "Ds"},
    "PNP-Dq": {"name": "pnp", "variant": "Dq"},
    "Smooth-AP": {"name": "smooth-ap"},
    "top-k precision": {"name": "topk-precision"},
    "Proxy-Anchor": {"name": "proxy-anchor"},
}
# The list; the paper's own tables have Smooth-AP, one of the I variants, and Dq.
MERGED = ["PNP-Dq", "PNP-O", "PNP-Iu", "PNP-Ib", "Smooth-AP"]
METRICS = ("recall@1", "MAP@R")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--merge", type=int, default=1, help="training classes merged into one")
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(STUDENT_95), help="runs of each loss")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    print("| loss | " + " | ".join(METRICS) + " |\n| --- |" + " --- |" * len(METRICS), flush=True)
    print_row("untrained head", {}, arguments, learning_rate=0.0)
    for name in LOSSES if arguments.merge == 1 else MERGED:
        print_row(name, LOSSES[name], arguments)


def print_row(name: str, loss: dict[str, Any], arguments: argparse.Namespace, learning_rate: float = 1e-3) -> None:
    results = [measure(loss, seed, arguments, learning_rate) for seed in range(arguments.seeds)]
    cells = [interval([100 * result[metric] for result in results]) for metric in METRICS]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def measure(loss: dict[str, Any], seed: int, arguments: argparse.Namespace, learning_rate: float) -> dict[str, float]:
    """Return the test metrics of one run."""
    recipe = make_recipe(
        {
            "seed": seed,
            "data": {"manifest": "icons", "merge_classes": arguments.merge},
            "embedder": {"trainable": "head", "size": 64, "crop": 1.0},
            "loss": loss,
            "batches": {"sampler": "balanced", "classes": 32, "per_class": 4},
            "optimizer": {"head": {"lr": learning_rate, "weight_decay": 1e-4 if learning_rate else 0.0}},
            "schedule": {"epochs": arguments.epochs if learning_rate else 1},
            "evaluation": {"every": 5},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        return train(recipe, Path(folder) / "run")["test"]


if __name__ == "__main__":
    main()
