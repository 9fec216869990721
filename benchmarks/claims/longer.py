"""Train some candidates of a claims run for longer, to see whether a verdict comes from too few epochs.

    python -m benchmarks.claims.longer runs/claims/omniglot --epochs 24 --candidates ProxyAnchor MPA MPA-DW MPA-AP

Prints the mean recall@1 on the test classes over some seeds, after the claims' own epochs and after more, and keeps
them for the page (``python -m benchmarks.claims --report-only``). Searched settings are those that the claims found.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from tophit.comparing import Plan, Store
from tophit.comparing.plan import recipe_of
from tophit.training import train

LONGER = "longer.jsonl"  # what was found, a line for each candidate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of one data set in a claims run")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--candidates", nargs="+", required=True)
    arguments = parser.parse_args()
    store = Store(arguments.folder)
    plan = store.plan()
    budget = plan.budget.model_copy(update={"epochs": arguments.epochs})
    longer = plan.model_copy(update={"budget": budget})
    print(f"candidate | {plan.budget.epochs} epochs | {arguments.epochs} epochs (recall@1, {arguments.seeds} seeds)")
    for name in arguments.candidates:
        found = [result for seed in range(arguments.seeds) if "metrics" in (result := store.result(name, seed) or {})]
        if len(found) < arguments.seeds:
            raise SystemExit(f"{arguments.folder} has {len(found)} of {arguments.seeds} finished seeds of '{name}'.")
        before = [result["metrics"]["recall@1"] for result in found]
        after = [_trained(longer, name, seed, result["settings"]) for seed, result in enumerate(found)]
        print(f"{name} | {100 * np.mean(before):.1f} | {100 * np.mean(after):.1f}", flush=True)
        kept = {"candidate": name, "epochs": arguments.epochs, "seeds": arguments.seeds}
        with (store.folder / LONGER).open("a") as file:
            file.write(json.dumps({**kept, "before": float(np.mean(before)), "after": float(np.mean(after))}) + "\n")


def _trained(plan: Plan, name: str, seed: int, settings: dict[str, object]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return float(train(recipe_of(plan, name, seed, settings), Path(folder) / "run")["test"]["recall@1"])


if __name__ == "__main__":
    main()
