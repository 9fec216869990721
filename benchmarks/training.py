"""Cost of an epoch on the icon set: a head on cached features compared with the whole network."""

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tophit.recipe import read_recipe
from tophit.training import train


def seconds_of_epochs(epochs: int, trainable: str, folder: Path) -> float:
    """Return how long a run of ``epochs`` epochs takes, everything included."""
    overrides = [
        f"embedder.trainable={trainable}",
        f"schedule.epochs={epochs}",
        "schedule.warmup_epochs=0",
        "evaluation.every=1000",
        "data.validation_share=0",
    ]
    start = time.perf_counter()
    train(read_recipe("icons", overrides), folder / f"{trainable}-{epochs}")
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds_of_epochs(1, "head", folder)  # fills the cache of features
        # An epoch's cost is the difference of two runs, so that start-up and testing cancel out.
        head = (seconds_of_epochs(41, "head", folder) - seconds_of_epochs(11, "head", folder)) / 30
        whole = seconds_of_epochs(3, "all", folder) - seconds_of_epochs(2, "all", folder)
    table = Table("what learns", "s per epoch", "ratio", title="Icon set, 331 classes, 3,020 images of 64 px")
    table.add_row("head, cached features", f"{head:.2f}", "1")
    table.add_row("whole network", f"{whole:.1f}", f"{whole / head:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
