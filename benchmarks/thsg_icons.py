"""Train a head on the icon set with triplets and with THSG, each with four miners, and with THSG without its parts.

    python -m benchmarks.thsg_icons

Every run has the same recipe except for miner and method: 20 epochs on cached features of the frozen backbone, batches
of 32 classes x 4 images, the epoch chosen on validation classes, measured on test classes that training never saw.
THSG's epoch of pre-training is one of the 20. The intervals are 95% for the mean over seeds (Student's t).
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import torch

from benchmarks.seeds import STUDENT_95, interval, train_head

MINERS = ("uniform", "semi-hard", "soft-hard", "distance-weighted")
METRICS = ("recall@1", "MAP@R")


def rows(epochs: int) -> dict[str, dict[str, Any]]:
    """Return the sections of each row's recipe that differ."""
    table: dict[str, dict[str, Any]] = {}
    for name, method in (("triplet", "plain"), ("THSG", "generation")):
        table |= {f"{name}, {miner}": {"miner": {"name": miner}, "method": {"name": method}} for miner in MINERS}
    ablations = {
        "without G2": {"second_stage": False},
        "without G2 and category": {"second_stage": False, "category": False},
        "without hard and category": {"hard": False, "category": False},
        "without anything generated": {"pretrain_epochs": epochs},
        "N-pair on the generated": {"hard_loss": "n-pair"},
        "buffer of 4 steps": {"buffer_steps": 4},
    }
    for name, fields in ablations.items():
        table[f"THSG, uniform, {name}"] = {"miner": {"name": "uniform"}, "method": {"name": "generation", **fields}}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(STUDENT_95), help="runs of each row")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each on one thread")
    arguments = parser.parse_args()
    print("| method, miner | " + " | ".join(METRICS) + " |\n| --- |" + " --- |" * len(METRICS), flush=True)
    with ProcessPoolExecutor(arguments.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        measured = {
            name: pool.map(partial(measure, sections, epochs=arguments.epochs), range(arguments.seeds))
            for name, sections in rows(arguments.epochs).items()
            if arguments.only in name
        }
        for name, results in measured.items():
            found = list(results)
            cells = [interval([100 * result[metric] for result in found]) for metric in METRICS]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def measure(sections: dict[str, Any], seed: int, epochs: int) -> dict[str, float]:
    """Return the test metrics of one run."""
    return train_head("icons", seed, {"loss": {"name": "triplet"}, "schedule": {"epochs": epochs}, **sections})["test"]


if __name__ == "__main__":
    main()
