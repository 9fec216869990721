"""The results in the repository: a small JSON file for each search and each measured run, from which the page is made.

    SET/set.json                    how many test queries each class has, and recall@1 of the untrained backbone
    SET/CANDIDATE/search-0.json     the trials of the search of a seed, with its own validation classes
    SET/CANDIDATE/seed-0.json       a measured run: metrics, and what each class adds to them

Each file has a digest of what was run. A file of another digest, from before the plan changed, counts as not there.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims.objectives import OBJECTIVES
from benchmarks.claims.sets import SETS
from tophit.comparing import Plan, Store, make_plan
from tophit.comparing.plan import slug
from tophit.comparing.statistics import ClassTable, class_table
from tophit.comparing.store import UNTRAINED
from tophit.comparing.tuning import best_trial
from tophit.files import write_text
from tophit.recipe import merged

RESULTS = Path(__file__).parent / "results"
METRICS = ("recall@1", "MAP@R")
VALIDATION_SHARE = 1 / 3  # of the training classes, in the search
_DIGITS = 1000  # a class's sum is kept in thousandths


@dataclass(frozen=True)
class Cell:
    """A candidate on a set: for each seed a search, with validation classes of its own, and a measured run.

    So the luck of a search is part of the spread over seeds, as it should be: settings that were chosen once and used
    by all seeds would make every difference look surer than it is. A cell with a base keeps the settings that the
    base's search of the same seed found; its own search has one trial, which finds how long to train.
    """

    set: str
    candidate: str
    results: Path = RESULTS

    @property
    def base(self) -> "Cell | None":
        """The cell whose settings it keeps: of the same set with clean labels, or of what is ablated; None: its own."""
        clean, base = SETS[self.set].clean, OBJECTIVES[self.candidate].base
        return Cell(clean or self.set, base or self.candidate, self.results) if clean or base else None

    @property
    def trials(self) -> int:
        """How many trials the search of a seed runs."""
        return 1 if self.base else SETS[self.set].trials

    def is_ready(self, seed: int) -> bool:
        """Whether the search of a seed can begin: a base's search comes first."""
        return self.base is None or self.base.is_found(seed)

    def is_found(self, seed: int) -> bool:
        """Whether the search of a seed is finished and found settings."""
        return best_trial(self.search(seed) or []) is not None

    def plan(self, data: str, seed: int) -> Plan:
        """Return the comparison of this one candidate: the search of a seed, then training on all training classes."""
        place: dict[str, Any] = {"data": {"manifest": data, "validation_fold": seed}, "budget": {"seeds": seed + 1}}
        if self.base is not None:
            best = best_trial(self.base.search(seed) or [])
            if best is None:
                raise ValueError(f"{self.base} has no search of seed {seed}")
            place["candidates"] = {self.candidate: OBJECTIVES[self.candidate].kept(best["settings"])}
        return make_plan(merged(self._fields(), place))

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the plan that all its runs share; without a search if its settings are a base's."""
        found = SETS[self.set]
        objective = OBJECTIVES[self.candidate]
        searched = objective.candidate(found.rates, found.values, found.few_images)
        candidate = {"change": objective.change} if self.base else searched
        precision = {} if found.precision == "fp32" else {"precision": found.precision}
        return {
            "data": {"validation_share": VALIDATION_SHARE, "validation_order": "listed", "cache": "ram"},
            "embedder": found.embedder,
            "common": {
                "schedule": {"warmup_epochs": 0, "decay": "none"},
                "checkpoint": {"minutes": 5},
                **precision,
            },
            "budget": {
                "trials": 1 if self.base else len(found.rates) * found.values,
                "epochs": found.epochs,
                "evaluations": found.epochs,
                "patience": found.patience,
                "all_classes": True,
            },
            "select": "recall@1",
            "metric": "recall@1",
            "metrics": list(METRICS),
            "candidates": {self.candidate: candidate},
        }

    @property
    def digest(self) -> str:
        """What is run, in twelve letters: the fields as they are written here, so that new defaults change nothing."""
        fields = self._fields() | ({"base": self.base.digest} if self.base else {})
        fields |= {"one_by_one": True} if SETS[self.set].one_by_one else {}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        """Where its results are."""
        return self.results / self.set / slug(self.candidate)

    def search(self, seed: int) -> list[dict[str, Any]] | None:
        """Return the trials of a seed's search, or None if it is not finished."""
        found = self._read(f"search-{seed}.json")
        return None if found is None else found["trials"]

    def run(self, seed: int) -> dict[str, Any] | None:
        """Return a measured run, or None if it is not finished."""
        return self._read(f"seed-{seed}.json")

    def seeds(self) -> list[int]:
        """Return the seeds that are finished, without those that failed."""
        numbers = sorted(int(path.stem.removeprefix("seed-")) for path in self.folder.glob("seed-*.json"))
        return [number for number in numbers if "classes" in (self.run(number) or {})]

    def table(self, seeds: list[int], metric: str) -> ClassTable:
        """Return a metric of measured runs as a table of seeds x classes."""
        sums = [np.asarray((self.run(seed) or {})["classes"][metric], np.float64) / _DIGITS for seed in seeds]
        return ClassTable(np.stack(sums), np.asarray(queries_of(self.set, self.results), np.float64))

    def keep_search(self, seed: int, trials: list[dict[str, Any]]) -> None:
        """Write the trials of a seed's search; one that found nothing is an error, not a result."""
        if best_trial(trials) is None:
            raise SystemExit(f"{self.set}, {self.candidate}, search {seed}: {trials[0].get('error', 'no trial ended')}")
        self._write(f"search-{seed}.json", {"trials": [_rounded(trial) for trial in trials]})

    def keep_run(self, seed: int, store: Store) -> None:
        """Write a measured run of a store."""
        result = store.result(self.candidate, seed) or {}
        names = ("settings", "steps", "seconds", "processor_seconds", "peak_memory", "error")
        kept = {"seed": seed, **{name: result[name] for name in names if name in result}}
        if "error" not in result:
            tables = {name: _table(store, self.candidate, seed, name) for name in METRICS}
            self._check_queries(tables[METRICS[0]].counts.astype(int).tolist())
            kept["metrics"] = {name: round(tables[name].mean, 5) for name in METRICS}
            kept["classes"] = {
                name: np.rint(_DIGITS * each.sums[0]).astype(int).tolist() for name, each in tables.items()
            }
        self._write(f"seed-{seed}.json", kept)

    def keep_untrained(self, store: Store) -> None:
        """Keep what the set's backbone reaches before training."""
        table = _table(store, UNTRAINED, 0, METRICS[0])
        self._check_queries(table.counts.astype(int).tolist())
        _write_facts(self.set, self.results, {"untrained": round(table.mean, 5)})

    def _check_queries(self, queries: list[int]) -> None:
        """Keep how many queries each class has, or check that they are the same as in all other runs of the set."""
        known = queries_of(self.set, self.results)
        if not known:
            _write_facts(self.set, self.results, {"queries": queries})
        elif known != queries:
            raise SystemExit(f"{self.set}: the test queries are not those of earlier runs; the data have changed.")

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        found = json.loads(path.read_text()) if path.is_file() else None
        return found if found is not None and found["digest"] == self.digest else None

    def _write(self, name: str, value: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / name, json.dumps({"digest": self.digest, **value}, separators=(",", ":")) + "\n")


def queries_of(name: str, results: Path) -> list[int]:
    """Return how many test queries each class of a set has; none if nothing was run on it."""
    return _facts(name, results).get("queries", [])


def untrained_of(name: str, results: Path) -> float | None:
    """Return recall@1 of a set's backbone before training; None if it was not measured."""
    return _facts(name, results).get("untrained")


def _facts(name: str, results: Path) -> dict[str, Any]:
    path = results / name / "set.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _write_facts(name: str, results: Path, facts: dict[str, Any]) -> None:
    path = results / name / "set.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(_facts(name, results) | facts) + "\n")


def _table(store: Store, name: str, seed: int, metric: str) -> ClassTable:
    values, labels = store.per_query(name, seed, metric)
    return class_table([values], labels)


def _rounded(trial: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in trial.items()}
