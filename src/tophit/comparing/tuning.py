"""The search of hyper-parameters: small grids completely, larger spaces by Optuna, which stops bad trials early.

A trial has a slot, 0 to trials - 1. The process that holds the slot's lock runs it. A trial that a killed process left
is run again with the same settings, so that no trial is lost or counted twice.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tophit.comparing.plan import EPOCHS, Budget, Candidate, Range, slug
from tophit.errors import UsageError

_SLOT = "slot"
_STARTUP = 4  # complete trials before later ones may be stopped early


class Trial(Protocol):
    """A trial of a search in progress."""

    @property
    def settings(self) -> dict[str, Any]:
        """The hyper-parameters of the trial."""
        ...

    @property
    def outcome(self) -> dict[str, Any] | None:
        """The outcome, if the trial had ended before its file was written."""
        ...

    def is_bad(self, step: int, value: float) -> bool:
        """Record an evaluation and say whether to stop."""
        ...

    def finish(self, value: float | None, state: str) -> None:
        """Record the outcome: ``complete``, ``pruned`` or ``failed``."""
        ...


class Search(Protocol):
    """Creates the trials of one candidate."""

    def start(self, slot: int) -> Trial:
        """Return the trial of a slot; one that was started before keeps its settings."""
        ...


def make_search(name: str, candidate: Candidate, trials: int, storage: str) -> Search | None:
    """Return a candidate's search: None without trials, a grid if it fits into them, else Optuna.

    Without hyper-parameters the grid has one point, the candidate as it is.
    """
    if not trials:
        return None
    lists = [values if isinstance(values, list) else None for values in candidate.search.values()]
    if all(values is not None for values in lists):
        grid = list(itertools.product(*(values or [] for values in lists)))
        if len(grid) <= trials:
            return GridSearch([dict(zip(candidate.search, values, strict=True)) for values in grid])
    return OptunaSearch(name, candidate, trials, storage)


def slots_of(candidate: Candidate, budget: Budget) -> int:
    """Return how many trials a candidate's search has: at most as many as its grid has points.

    Where nothing is searched there is none, or one if the trial has to find out how long to train.
    """
    if not (candidate.search and budget.trials):
        return int(budget.all_classes)
    points = 1
    for values in candidate.search.values():
        if isinstance(values, Range):
            return budget.trials
        points *= len(values)
    return min(points, budget.trials)


def best_settings(trials: list[dict[str, Any]], with_epochs: bool = False) -> dict[str, Any]:
    """Return the settings of the best complete trial (the first of equals); none if no trial is complete.

    With ``with_epochs`` they include after how many epochs it was best.
    """
    best = best_trial([trial for trial in trials if "best_epoch" in trial or not with_epochs])
    if best is None:
        return {}
    return best["settings"] | ({EPOCHS: best["best_epoch"]} if with_epochs else {})


def best_trial(trials: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the complete trial with the highest value, the first of equals; None if there is none."""
    complete = [trial for trial in trials if trial["state"] == "complete" and trial["value"] is not None]
    return max(complete, key=lambda trial: trial["value"], default=None)


@dataclass(frozen=True)
class _GridTrial:
    settings: dict[str, Any]
    outcome: None = None

    def is_bad(self, step: int, value: float) -> bool:
        return False

    def finish(self, value: float | None, state: str) -> None:
        pass


@dataclass(frozen=True)
class GridSearch:
    """Every combination once."""

    points: list[dict[str, Any]]

    def start(self, slot: int) -> _GridTrial:
        """Return the trial of a slot."""
        return _GridTrial(self.points[slot])


class OptunaSearch:
    """Bayesian search (TPE) in a storage that many processes and machines can share."""

    def __init__(self, name: str, candidate: Candidate, trials: int, storage: str) -> None:
        optuna = _optuna()
        self.space = candidate.search
        self.startup = max(1, min(_STARTUP, trials // 2))
        self.study = optuna.create_study(
            study_name=slug(name),
            storage=_open_storage(storage),
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=self.startup),
            load_if_exists=True,
        )

    def start(self, slot: int) -> "_OptunaTrial":
        """Return the trial of a slot: the one that a killed process started or even ended, or a new one."""
        optuna = _optuna()
        for frozen in self.study.get_trials(deepcopy=False):
            if frozen.user_attrs.get(_SLOT) == slot:
                trial = None if frozen.state.is_finished() else optuna.trial.Trial(self.study, frozen._trial_id)
                return _OptunaTrial(self.study, trial, frozen.params, frozen)
        # A trial that is running counts as a bad one, so that parallel workers try different settings.
        self.study.sampler = optuna.samplers.TPESampler(n_startup_trials=self.startup, constant_liar=True, seed=slot)
        trial = self.study.ask()
        settings = {path: _suggest(trial, path, where) for path, where in self.space.items()}
        trial.set_user_attr(_SLOT, slot)
        return _OptunaTrial(self.study, trial, settings)


class _OptunaTrial:
    def __init__(self, study: Any, trial: Any, settings: dict[str, Any], before: Any = None) -> None:
        self.study, self.trial, self.settings = study, trial, settings
        self.outcome: dict[str, Any] | None = None
        if before is not None and before.state.is_finished():
            state = {found: word for word, found in _states().items()}[before.state]
            self.outcome = {"settings": settings, "value": before.value, "state": state}

    def is_bad(self, step: int, value: float) -> bool:
        self.trial.report(value, step)
        return self.trial.should_prune()

    def finish(self, value: float | None, state: str) -> None:
        self.study.tell(self.trial, value if state == "complete" else None, state=_states()[state])


def _states() -> dict[str, Any]:
    """Return the states of Optuna by our names for them."""
    states = _optuna().trial.TrialState
    return {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}


def _suggest(trial: Any, path: str, where: Range | list[Any]) -> Any:
    if isinstance(where, list):
        return trial.suggest_categorical(path, where)
    if where.whole:
        return trial.suggest_int(path, round(where.low), round(where.high), log=where.log)
    return trial.suggest_float(path, where.low, where.high, log=where.log)


def _open_storage(storage: str) -> Any:
    """Open the storage of Optuna: the address of a database, or a journal file in a folder that all workers share."""
    optuna = _optuna()
    if "://" in storage:
        return optuna.storages.RDBStorage(storage)
    from optuna.storages.journal import JournalFileBackend

    Path(storage).parent.mkdir(parents=True, exist_ok=True)
    return optuna.storages.JournalStorage(JournalFileBackend(storage))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            "A search needs Optuna, which is not installed: pip install 'tophit[compare]'; or use --trials 0."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def read_trials(paths: list[Path]) -> list[dict[str, Any]]:
    """Return finished trials from their files."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]
