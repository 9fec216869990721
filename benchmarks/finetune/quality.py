"""Recall@1 and MAP@R on unseen classes: the backbone as it is, a head, the last stages, everything.

The objective of each is the one with the best MAP@R on the validation classes of the first seed; the other seeds use it
too. Differences are paired over queries, averaged over seeds, with a 95% interval by bootstrap over classes.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.embedding.rows import embed_rows
from tophit.evaluation import paired_difference
from tophit.files import write_json
from tophit.models.embedder import load
from tophit.recipe import Recipe, read_recipe
from tophit.training import resume, train
from tophit.training.building import make_embedder
from tophit.training.evaluate import metrics_of_vectors
from tophit.training.run import Run
from tophit.training.run_rows import rows_of

METRICS = ("recall@1", "MAP@R")
OBJECTIVES: dict[str, list[str]] = {
    "proxy-anchor": ["loss.name=proxy-anchor", "batches.sampler=random"],
    "pnp": ["loss.name=pnp", "batches.sampler=balanced", "batches.classes=16", "batches.per_class=4"],
}


@dataclass(frozen=True)
class Budget:
    """What all runs share; ``overrides`` are fields of every recipe."""

    seeds: int
    size: int
    crop: float
    epochs: int
    overrides: tuple[str, ...] = ()


def is_kind(text: str) -> bool:
    """Say whether a text names what learns: head, last, all, or last:8 for eight stages."""
    return text in ("head", "last", "all") or (text.startswith("last:") and text[5:].isdigit())


def recipe_of(data: str, kind: str, objective: str, seed: int, budget: Budget) -> Recipe:
    """Return the recipe of one run; it is measured on validation classes only."""
    trainable, _, stages = kind.partition(":")
    own = [
        f"seed={seed}",
        f"embedder.trainable={trainable}",
        *([f"embedder.last={stages}"] if stages else []),
        f"embedder.size={budget.size}",
        f"embedder.crop={budget.crop}",
        f"schedule.epochs={budget.epochs * (2 if kind == 'head' else 1)}",
        "data.validation_share=0.2",
        "evaluation.test=false",
        "evaluation.keep=trained",
        "log=[]",
    ]
    return read_recipe("head" if kind == "head" else "last", [*own, *OBJECTIVES[objective], *budget.overrides], data)


def measure_quality(data: str, out: Path, budget: Budget, kinds: Sequence[str], objectives: Sequence[str]) -> None:
    """Do the runs that are missing, seed by seed, and print the table after each seed."""
    for seed in range(budget.seeds):
        for kind in ("untrained", *kinds):
            path = out / f"{kind}-{seed}.json"
            if not path.is_file():
                out.mkdir(parents=True, exist_ok=True)
                write_json(path, _result(data, out, kind, objectives, seed, budget))
        print_quality(out, seed + 1, kinds)


def _result(data: str, out: Path, kind: str, objectives: Sequence[str], seed: int, budget: Budget) -> dict[str, Any]:
    """Return a kind's metrics of every test query, and which objective was chosen."""
    if kind == "untrained":
        recipe = recipe_of(data, "head", next(iter(OBJECTIVES)), seed, budget)
        return {"kind": kind, "seed": seed} | _tested(make_embedder(recipe, head=False).eval(), recipe)
    first = out / f"{kind}-0.json"
    wanted = objectives if seed == 0 else [json.loads(first.read_text())["objective"]]
    values, seconds = {}, {}
    for objective in wanted:
        folder = out / "runs" / f"{kind}-{objective}-{seed}"
        recipe = recipe_of(data, kind, objective, seed, budget)
        began = time.process_time()
        if Run(folder).checkpoint_path.is_file():
            resume(folder)
        else:
            train(recipe, folder)
        values[objective] = (Run(folder).result() or {})["validation"]["MAP@R"]
        seconds[objective] = time.process_time() - began
        print(f"seed {seed}, {kind}, {objective}: validation MAP@R {values[objective]:.4f}", flush=True)
    chosen = max(values, key=values.__getitem__)
    folder = out / "runs" / f"{kind}-{chosen}-{seed}"
    found = {"kind": kind, "seed": seed, "objective": chosen, "validation": values, "seconds": seconds[chosen]}
    return found | _tested(load(folder), Run(folder).recipe())


def _tested(embedder: Any, recipe: Recipe) -> dict[str, Any]:
    test = rows_of(recipe).test
    embedded = embed_rows(embedder, test.rows)
    rows = [test.rows[i] for i in embedded.rows]
    metrics = metrics_of_vectors(embedded.vectors, rows)
    return {
        "metrics": {name: float(metrics[name]) for name in METRICS},
        "per_query": {name: np.round(metrics.per_query[name], 4).tolist() for name in METRICS},
        "labels": [row.label for row in rows],
    }


def print_quality(out: Path, seeds: int, kinds: Sequence[str]) -> None:
    """Print means over seeds, and each kind's paired difference from the untrained backbone.

    The minutes are of one run: the first also computes what is cached, so they are the median over seeds.
    """
    found = {
        kind: [json.loads((out / f"{kind}-{seed}.json").read_text()) for seed in range(seeds)]
        for kind in ("untrained", *kinds)
    }
    labels = np.asarray(found["untrained"][0]["labels"])
    print(f"\n{seeds} seeds, {len(labels):,} queries of {len(set(labels.tolist()))} classes never seen")
    print("| trained | recall@1 | MAP@R | recall@1 gained | MAP@R gained | objective | processor minutes |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, results in found.items():
        means = [f"{100 * np.mean([each['metrics'][name] for each in results]):.1f}" for name in METRICS]
        gains = [_gain(results, found["untrained"], name, labels) if kind != "untrained" else "" for name in METRICS]
        chosen = ", ".join(dict.fromkeys(each.get("objective", "") for each in results))
        minutes = f"{np.median([each.get('seconds', 0) for each in results]) / 60:.1f}"
        print(f"| {kind} | {' | '.join(means)} | {' | '.join(gains)} | {chosen} | {minutes} |", flush=True)


def _gain(results: list[dict[str, Any]], others: list[dict[str, Any]], name: str, labels: np.ndarray) -> str:
    first, second = (np.mean([each["per_query"][name] for each in part], axis=0) for part in (results, others))
    gain = paired_difference(first, second, labels)
    return f"{100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
