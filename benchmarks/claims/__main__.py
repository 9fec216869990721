"""Test the five papers' claims on four data sets and write docs/claims.md.

    python -m benchmarks.claims --cub CUB.npz --cars CARS.npz --omniglot OMNIGLOT.npz --out runs/claims

CUB and Cars are feature files (features, labels), Omniglot an archive of images (images, labels, class_names, split);
the icons are made here. Every finished run is kept in --out, so the command continues where it was stopped; runs go
seed by seed over all claims and sets, so that a table can be written at any time: --report-only.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.claims.plans import HEAD, NET, claims_plan
from benchmarks.claims.sets import characters, icon_features, reduced
from tophit.comparing import Plan, Store
from tophit.comparing.workers import run_workers
from tophit.progress import View

TIMES = "times.jsonl"  # how long each round took
SETS = {"cub": "CUB-200-2011", "icons": "Icons", "cars": "Cars196", "omniglot": "Omniglot"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cub", type=Path, help="feature file of CUB-200-2011")
    parser.add_argument("--cars", type=Path, help="feature file of Cars196")
    parser.add_argument("--omniglot", type=Path, help="archive of Omniglot's images")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", type=Path, default=Path("docs/claims.md"))
    parser.add_argument("--report-only", action="store_true", help="write the table of what is finished")
    arguments = parser.parse_args()
    if not arguments.report_only:
        run_claims(arguments)
    from benchmarks.claims.report import write_report

    stores = {key: Store(arguments.out / key) for key in arguments.sets}
    write_report(stores, SETS, arguments.out / TIMES, arguments.write)


def run_claims(arguments: argparse.Namespace) -> None:
    """Do the runs that are missing, some seeds of every set after the other."""
    os.environ["TOPHIT_ONNX"] = "0"  # an export for every small net that is measured once would cost more than it saves
    for key, seeds in _rounds(arguments.sets, arguments.seeds):
        store = Store(arguments.out / key)
        if store.plan_path.is_file() and store.plan().budget.seeds > seeds:
            continue  # an earlier command came farther
        plan = plan_of(key, seeds, arguments)
        store.begin(plan)
        started = time.monotonic()
        run_workers(plan, store, arguments.workers, None, View())
        seconds = round(time.monotonic() - started)
        with (arguments.out / TIMES).open("a") as file:
            file.write(
                json.dumps({"set": key, "seeds": seeds, "workers": arguments.workers, "seconds": seconds}) + "\n"
            )
        print(f"{SETS[key]}: {seeds} seeds, {seconds} s", flush=True)


def _rounds(sets: list[str], seeds: int) -> Iterator[tuple[str, int]]:
    """Yield a set and how many seeds it is to have then: two more in each round, the slow net a round behind."""
    for done in range(2, seeds + 4, 2):
        for key in sets:
            wanted = min(seeds, done - 2 if key == "omniglot" else done)
            if wanted:
                yield key, wanted


def plan_of(key: str, seeds: int, arguments: argparse.Namespace) -> Plan:
    """Return the plan of a data set, whose files are made if they have to be."""
    if key == "omniglot":
        manifest = characters(_given(arguments.omniglot, key), arguments.out / "data" / "omniglot")
        return claims_plan(SETS[key], str(manifest), seeds, NET)
    data = {"cub": arguments.cub, "cars": arguments.cars}
    file = icon_features(arguments.out / "data" / "icons.npz") if key == "icons" else _given(data[key], key)
    components = reduced(file, arguments.out / "data" / f"{key}-256.npz")
    return claims_plan(SETS[key], str(components.absolute()), seeds, HEAD)


def _given(path: Path | None, key: str) -> Path:
    if path is None:
        raise SystemExit(f"Name the file of {SETS[key]} with --{key}, or leave it out of --sets.")
    return path


if __name__ == "__main__":
    main()
