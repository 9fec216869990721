"""The folder of a comparison: its plan, the results of each run, and locks. Every file is written once, atomically.

plan.yaml                       the plan, resolved
trials/NAME/0003.json           a finished trial of a search: settings and validation metric
results/NAME/seed-3.json .npz   a measured run: metrics, time and memory; the metrics of every test query
runs/NAME/seed-3/               the measured run itself, if the plan keeps runs
winner.yaml                     the recipe of the recommended candidate
work/, locks/                   runs in progress; which process works on which run
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.comparing.plan import Plan, read_plan, slug
from tophit.errors import TophitError, UsageError
from tophit.files import replace_file, write_json, write_text

UNTRAINED = "untrained backbone"
"""The name under which the backbone before training is stored beside the candidates."""


@dataclass(frozen=True)
class Store:
    """The files of one comparison."""

    folder: Path

    @property
    def plan_path(self) -> Path:
        """The resolved plan."""
        return self.folder / "plan.yaml"

    @property
    def winner_path(self) -> Path:
        """The recipe of the recommended candidate."""
        return self.folder / "winner.yaml"

    def plan(self) -> Plan:
        """Return the plan."""
        if not self.plan_path.is_file():
            raise UsageError(f"There is no comparison in {self.folder}: it has no {self.plan_path.name}.")
        return read_plan(self.plan_path)

    def begin(self, plan: Plan) -> None:
        """Create the folder of a plan, or check that an existing one fits it: seeds and candidates may be added."""
        if self.plan_path.is_file():
            _check_continues(self.plan(), plan, self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.plan_path, plan.to_yaml())

    def trial_path(self, name: str, slot: int) -> Path:
        """Return the file of a finished trial."""
        return self.folder / "trials" / slug(name) / f"{slot:04}.json"

    def result_path(self, name: str, seed: int) -> Path:
        """Return the file of a measured run; the values of its queries are next to it."""
        return self.folder / "results" / slug(name) / f"seed-{seed}.json"

    def run_path(self, name: str, seed: int) -> Path:
        """Return the folder of a measured run that the plan keeps."""
        return self.folder / "runs" / slug(name) / f"seed-{seed}"

    def work_path(self, name: str, what: str) -> Path:
        """Return the folder of a run in progress."""
        return self.folder / "work" / slug(name) / what

    def write_json(self, path: Path, value: Any) -> None:
        """Write a file that must not exist yet: overwriting would lose a finished run."""
        if path.exists():
            raise TophitError(f"{path} exists already; a run must not be counted twice.")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, value)

    def write_result(self, name: str, seed: int, result: dict[str, Any], values: dict[str, np.ndarray]) -> None:
        """Write a measured run: first the values of its queries, then the file that marks it as finished."""
        path = self.result_path(name, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        if values:
            with replace_file(path.with_suffix(".npz")) as temporary:
                np.savez_compressed(temporary, **values)  # pyright: ignore[reportArgumentType]
        self.write_json(path, result)

    def result(self, name: str, seed: int) -> dict[str, Any] | None:
        """Return a measured run, or None if it is not finished."""
        path = self.result_path(name, seed)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def forget_failures(self, plan: Plan) -> int:
        """Delete the results of failed runs, so that they run again; return how many there were."""
        failed = 0
        for name in plan.candidates:
            for seed in range(plan.budget.seeds):
                if "error" in (self.result(name, seed) or {}):
                    self.result_path(name, seed).unlink()
                    failed += 1
        return failed

    def per_query(self, name: str, seed: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a metric for every test query of a measured run, and the labels of the queries."""
        with np.load(self.result_path(name, seed).with_suffix(".npz"), allow_pickle=False) as values:
            return values[metric], values["labels"]

    @contextmanager
    def lock(self, name: str, what: str) -> Iterator[bool]:
        """Yield whether this process got the lock of a run, on this machine or several.

        The operating system releases a lock when its process ends, however it ends.
        """
        path = self.folder / "locks" / f"{slug(name)}--{what}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def _check_continues(old: Plan, new: Plan, folder: Path) -> None:
    """Raise if the finished runs of an old plan do not belong to the new one."""
    for part in ("data", "embedder", "common", "select", "metrics"):
        if getattr(old, part) != getattr(new, part):
            raise UsageError(f"{folder} contains a comparison with another '{part}'; name another folder.")
    for part in ("trials", "epochs", "evaluations", "patience", "all_classes"):
        if getattr(old.budget, part) != getattr(new.budget, part):
            raise UsageError(f"{folder} contains a comparison with another budget.{part}; name another folder.")
    for name in set(old.candidates) & set(new.candidates):
        before, after = old.candidates[name], new.candidates[name]
        if (before.recipe, before.change, before.search) != (after.recipe, after.change, after.search):
            raise UsageError(f"{folder} contains a comparison with another candidate '{name}'; name another folder.")


def is_comparison(folder: str | Path) -> bool:
    """Say whether a folder is that of a comparison and not of a run."""
    return Store(Path(folder)).plan_path.is_file()
