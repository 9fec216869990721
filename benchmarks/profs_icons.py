"""Train a head on the icon set for each of the 18 rows of the PROFS paper's Table 1, over several seeds.

    python -m benchmarks.profs_icons          the table: recall@1, MAP@R, NMI and F1 on test classes
    python -m benchmarks.profs_icons --tune   how the settings were chosen: MAP@R on validation classes

The rows are in src/tophit/recipes/tables/profs.yaml; to run just one: tophit train profs/triplet-hncm --run runs/it.
Every row has the same budget: 10 epochs on cached features of the frozen backbone, batches of 64 x 2 images, the epoch
chosen on validation classes, measured on test classes that training never saw. The intervals are 95% for the mean over
seeds (Student's t). Tuning uses seeds that the table does not.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.seeds import STUDENT_95, interval
from tophit.data.folders import open_data
from tophit.embedding.features import cached_features
from tophit.evaluation import clustering_metrics
from tophit.models.embedder import load
from tophit.recipe import read_recipe, table_rows
from tophit.training import train

METRICS = ("recall@1", "MAP@R", "NMI", "F1")
LOSSES = ("contrastive", "triplet", "lifted", "n-pair", "angular", "margin")
WAYS = ("baseline", "profs", "hncm")
RATES = (3e-4, 1e-3)
SETTINGS = ("rho=6 proximal=1e-3", "rho=2 proximal=1e-3", "rho=6 proximal=1e-1", "rho=6 proximal=0")
TUNING_SEED = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(STUDENT_95), help="runs of each row")
    parser.add_argument("--losses", nargs="+", default=LOSSES, choices=LOSSES, help="only rows of these losses")
    parser.add_argument("--tune", action="store_true", help="compare settings on validation classes instead")
    arguments = parser.parse_args()
    if arguments.tune:
        tune(arguments.losses)
    else:
        print_table(arguments.losses, arguments.seeds)


def print_table(losses: Sequence[str], seeds: int) -> None:
    print("| row | " + " | ".join(METRICS) + " |\n| --- |" + " --- |" * len(METRICS), flush=True)
    for row in (f"{loss}-{way}" for loss in losses for way in WAYS):
        results = [measure(row, seed) for seed in range(seeds)]
        cells = [interval([100 * result[metric] for result in results]) for metric in METRICS]
        print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


def measure(row: str, seed: int, overrides: Sequence[str] = ()) -> dict[str, float]:
    """Return one run's metrics on the test classes, and under "validation" its best MAP@R on validation classes."""
    assert f"profs/{row}" in table_rows()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        result = train(read_recipe(f"profs/{row}", [f"seed={seed}", *overrides]), folder)
        embedder = load(folder)
    test = open_data("icons").where("test")
    features = cached_features(embedder, test.rows, None)
    vectors = embedder.embed_arrays(features.values)
    clusters = clustering_metrics(vectors, [test.rows[i].label for i in features.rows], seed=seed)
    return {**result["test"], **clusters, "validation": result["validation"]["MAP@R"]}


def tune(losses: Sequence[str]) -> None:
    """Print MAP@R on validation classes for learning rates, and for rho and lambda, the mean of a loss's rows."""
    choices: dict[str, tuple[Sequence[str], list[str]]] = {
        f"lr {rate:g}": (("baseline", "profs"), [f"optimizer.head.lr={rate}"]) for rate in RATES
    }
    for setting in SETTINGS:
        choices[setting] = (("profs",), [f"method.{part}" for part in setting.split()])
    print("| validation MAP@R | " + " | ".join(choices) + " |\n| --- |" + " --- |" * len(choices), flush=True)
    for loss in losses:
        cells = [
            f"{statistics.mean(validation(f'{loss}-{way}', overrides) for way in ways):.1f}"
            for ways, overrides in choices.values()
        ]
        print(f"| {loss} | " + " | ".join(cells) + " |", flush=True)


def validation(row: str, overrides: Sequence[str]) -> float:
    with tempfile.TemporaryDirectory() as name:
        recipe = read_recipe(f"profs/{row}", [f"seed={TUNING_SEED}", *overrides])
        return 100 * train(recipe, Path(name) / "run")["validation"]["MAP@R"]


if __name__ == "__main__":
    main()
