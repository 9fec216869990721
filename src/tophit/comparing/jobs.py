"""The jobs of a comparison, in their order, and how one is done."""

import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.comparing.plan import Plan, recipe_of, trial_recipe
from tophit.comparing.store import Store
from tophit.comparing.tuning import Trial, best_settings, make_search, read_trials, slots_of
from tophit.errors import Interrupted
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.training.run import Run

_BESIDE_A_PAPER = ("test_sets", "paper", "paper_left_out")  # parts of a run's result that a paper's table needs


@dataclass(frozen=True)
class Job:
    """One run: a trial of a candidate's search, or a seed that is measured on the test classes."""

    name: str
    kind: str  # trial, seed
    number: int

    @property
    def label(self) -> str:
        """Its name in file names."""
        return f"{self.kind}-{self.number}"

    def is_done(self, store: Store) -> bool:
        """Say whether it is finished."""
        path = store.trial_path if self.kind == "trial" else store.result_path
        return path(self.name, self.number).is_file()


def jobs_of(plan: Plan) -> Iterator[Job]:
    """Yield all jobs: first the trials, then the seeds, each round over all candidates.

    So all candidates have had the same number of runs whenever the work is stopped.
    """
    for slot in range(max(plan.budget.trials, int(plan.budget.all_classes))):
        for name, candidate in plan.candidates.items():
            if slot < slots_of(candidate, plan.budget):
                yield Job(name, "trial", slot)
    for seed in range(plan.budget.seeds):
        for name in plan.candidates:
            yield Job(name, "seed", seed)


def is_ready(job: Job, plan: Plan, store: Store) -> bool:
    """Say whether a job can start: a seed needs all trials of its candidate."""
    return job.kind == "trial" or all(path.is_file() for path in _trial_paths(job.name, plan, store))


def do_job(job: Job, plan: Plan, store: Store, storage: str) -> None:
    """Do a job whose lock this process holds; continue it where a stopped process left it."""
    work = store.work_path(job.name, job.label)
    if job.kind == "trial":
        _do_trial(job, plan, store, storage, work)
    else:
        _do_seed(job, plan, store, work)
    clear_work(job, plan, store)


def clear_work(job: Job, plan: Plan, store: Store) -> None:
    """Delete the run of a finished job, whose result is kept; a plan that keeps runs keeps it without checkpoints."""
    work = store.work_path(job.name, job.label)
    if plan.keep_runs and job.kind == "seed" and Run(work).best.is_dir():
        for checkpoint in work.glob(f"{Run(work).checkpoint_path.stem}*"):
            checkpoint.unlink()
        kept = store.run_path(job.name, job.number)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        work.rename(kept)
    shutil.rmtree(work, ignore_errors=True)


def _do_trial(job: Job, plan: Plan, store: Store, storage: str, work: Path) -> None:
    candidate = plan.candidates[job.name]
    if not plan.budget.trials:  # the one trial finds out how long to train, nothing else
        candidate = candidate.model_copy(update={"search": {}})
    search = make_search(job.name, candidate, max(1, plan.budget.trials), storage)
    assert search is not None
    trial = search.start(job.number)
    if trial.outcome is not None:
        store.write_json(store.trial_path(job.name, job.number), trial.outcome)
        return
    outcome: dict[str, Any] = {"settings": trial.settings, "value": None}
    processor = time.process_time()
    try:
        result = _train(trial_recipe(plan, job.name, trial.settings), work, _Pruning(trial))
        outcome |= {"state": "complete", "value": result["validation"].get(plan.select, 0.0)}
        outcome |= {"best_epoch": result["best_epoch"], "steps": result["steps"]}
    except _Pruned as stop:
        outcome |= {"state": "pruned", "pruned_at": stop.step}
    except (Interrupted, KeyboardInterrupt):
        raise
    except Exception as error:  # settings that diverge are a valid result of a search
        outcome |= {"state": "failed", "error": f"{type(error).__name__}: {error}"}
    outcome["processor_seconds"] = round(time.process_time() - processor, 3)
    trial.finish(outcome["value"], outcome["state"])
    store.write_json(store.trial_path(job.name, job.number), outcome)


def _do_seed(job: Job, plan: Plan, store: Store, work: Path) -> None:
    settings = best_settings(read_trials(_trial_paths(job.name, plan, store)), plan.budget.all_classes)
    processor = time.process_time()
    _forget_peak()
    common = {"candidate": job.name, "seed": job.number, "settings": settings}
    try:
        result = _train(recipe_of(plan, job.name, job.number, settings), work, View())
    except (Interrupted, KeyboardInterrupt):
        raise
    except Exception as error:  # one candidate that fails must not stop the others
        failed = {**common, "error": f"{type(error).__name__}: {error}"}
        store.write_result(job.name, job.number, failed, {})
        return
    measured = {
        **common,
        "metrics": result["test"],
        "validation": result["validation"],
        "best_epoch": result["best_epoch"],
        "steps": result["steps"],
        "unreadable": len(Run(work).bad_images()),
        "seconds": result["seconds"],  # of training; of an interrupted run, all parts together
        "processor_seconds": round(time.process_time() - processor, 3),
        "peak_memory": _peak_memory(),
        **{name: result[name] for name in _BESIDE_A_PAPER if result.get(name)},
    }
    with np.load(Run(work).per_query_path, allow_pickle=False) as values:
        kept = {metric: values[metric].astype(np.float32) for metric in plan.metrics} | {"labels": values["labels"]}
    store.write_result(job.name, job.number, measured, kept)


def _trial_paths(name: str, plan: Plan, store: Store) -> list[Path]:
    return [store.trial_path(name, slot) for slot in range(slots_of(plan.candidates[name], plan.budget))]


def _train(recipe: Recipe, work: Path, view: View) -> dict[str, Any]:
    """Train in a work folder, or continue there exactly where a stopped process was."""
    from tophit import training  # here, because it imports torch

    if Run(work).checkpoint_path.is_file():
        return training.resume(work, view)
    shutil.rmtree(work, ignore_errors=True)
    work.parent.mkdir(parents=True, exist_ok=True)
    return training.train(recipe, work, view)


class _Pruned(Exception):
    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class _Pruning(View):
    """Reports every evaluation to a trial and stops a bad one."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def evaluated(self, epoch: int, metric: str, value: float, recall: float, splits: int = 1) -> None:
        """Report an evaluation on validation classes."""
        if self.trial.is_bad(epoch, value):
            raise _Pruned(epoch)


def _forget_peak() -> None:
    with suppress(OSError):  # not Linux: the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory() -> int:
    """Return the peak of the main memory in bytes, or of the GPU if one is used, since ``_forget_peak``."""
    import torch

    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
