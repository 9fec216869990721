"""A comparison that is killed, continued, and worked on by two processes: nothing is lost or done twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import optuna
import pytest
from tests.reference.comparisons import toy_plan

from tophit.comparing import Plan, Store
from tophit.comparing.comparison import run_comparison
from tophit.comparing.jobs import Job, do_job, jobs_of
from tophit.comparing.tuning import best_settings, make_search
from tophit.comparing.workers import default_storage, run_workers, work
from tophit.errors import Interrupted, TophitError, UsageError
from tophit.progress import View


def start_worker(store: Store) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tophit.cli", "compare", str(store.folder), "--worker"]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


def finished(plan: Plan, store: Store) -> set[Job]:
    return {job for job in jobs_of(plan) if job.is_done(store)}


def wait_for(condition, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def held_back(plan: Plan, store: Store) -> Iterator[None]:
    """Keep the last job from the workers, so that there is something left to do, however slow this process is."""
    last = list(jobs_of(plan))[-1]
    with store.lock(last.name, last.label):
        yield


def is_under_way(plan: Plan, store: Store, least: int) -> bool:
    """Say whether so many jobs are finished and one is in the middle of training, or all that can be are finished."""
    done = len(finished(plan, store))
    begun = list((store.folder / "work").rglob("checkpoint.pt"))
    return done >= least and bool(begun or done == len(list(jobs_of(plan))) - 1)


def results_of(plan: Plan, store: Store) -> dict[tuple[str, int], bytes]:
    """Return the metrics of every query of every measured run."""
    return {
        (name, seed): store.per_query(name, seed, "MAP@R")[0].tobytes()
        for name in plan.candidates
        for seed in range(plan.budget.seeds)
    }


def files_of(store: Store) -> dict[str, int]:
    """Return when each finished run was written."""
    return {
        str(path): path.stat().st_mtime_ns
        for part in ("trials", "results")
        for path in (store.folder / part).rglob("*.*")
    }


def test_killed_and_continued_by_two_workers_no_trial_is_lost_or_run_twice(tmp_path: Path, toy_data: str) -> None:
    plan = toy_plan(toy_data, seeds=2, trials=4, epochs=2)
    store = Store(tmp_path / "it")
    store.begin(plan)
    with held_back(plan, store):
        workers = [start_worker(store), start_worker(store)]
        wait_for(lambda: is_under_way(plan, store, 4))
        for worker in workers:  # as when the power fails: nothing can be tidied up
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    before, written = finished(plan, store), files_of(store)
    assert 4 <= len(before) < len(list(jobs_of(plan)))
    workers = [start_worker(store), start_worker(store)]
    assert [worker.wait(300) for worker in workers] == [0, 0]
    assert finished(plan, store) == set(jobs_of(plan))
    after = files_of(store)
    assert {path: after[path] for path in written} == written  # what was finished was not done again
    storage = default_storage(store)
    for name in ("Triplet (all)", "ProxyAnchor"):
        search = make_search(name, plan.candidates[name], plan.budget.trials, storage)
        trials = search.study.get_trials()  # pyright: ignore
        ended = [trial for trial in trials if trial.state.is_finished() and "slot" in trial.user_attrs]
        assert sorted(trial.user_attrs["slot"] for trial in ended) == [0, 1, 2, 3]
        assert Counter(trial.user_attrs.get("slot") for trial in trials if "slot" in trial.user_attrs) == dict.fromkeys(
            range(4), 1
        )
        kept = [json.loads(store.trial_path(name, slot).read_text()) for slot in range(4)]
        told = {trial.user_attrs["slot"]: trial for trial in ended}
        for slot, outcome in enumerate(kept):
            assert outcome["settings"] == told[slot].params
            if outcome["state"] == "complete":
                assert outcome["value"] == told[slot].value
        assert store.result(name, 0)["settings"] == best_settings(kept)  # pyright: ignore


def test_an_interrupted_comparison_gives_what_one_without_interruption_gives(tmp_path: Path, toy_data: str) -> None:
    plan = toy_plan(toy_data, seeds=2, epochs=4)
    whole, parts = Store(tmp_path / "whole"), Store(tmp_path / "parts")
    whole.begin(plan)
    assert work(whole.folder) == 6
    parts.begin(plan)
    with held_back(plan, parts):
        worker = start_worker(parts)
        wait_for(lambda: is_under_way(plan, parts, 1))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert 1 <= len(finished(plan, parts)) < 6
    work(parts.folder)
    assert results_of(plan, parts) == results_of(plan, whole)
    assert not list((parts.folder / "work").rglob("*.pt"))


def test_what_a_worker_left_that_was_killed_after_its_result_is_cleared(tmp_path: Path, toy_data: str) -> None:
    plan, store = toy_plan(toy_data, seeds=1, epochs=1), Store(tmp_path / "parts")
    store.begin(plan)
    work(store.folder)
    first, second, *_ = jobs_of(plan)
    for job in (first, second):
        left = store.work_path(job.name, job.label)
        left.mkdir(parents=True)
        (left / "checkpoint.pt").write_bytes(b"left behind")
    with store.lock(second.name, second.label):  # another worker has just written its result, and clears it itself
        assert work(store.folder) == 0
    assert not store.work_path(first.name, first.label).exists()
    assert store.work_path(second.name, second.label).exists()


def test_ctrl_c_stops_the_workers_and_the_command_continues(tmp_path: Path, toy_data: str) -> None:
    class Impatient(View):
        def track(self, description: str):
            def stop(items, total):
                for count, item in enumerate(items):
                    if count == 1:
                        raise KeyboardInterrupt
                    yield item

            return stop

    plan = toy_plan(toy_data, seeds=3)
    store = Store(tmp_path / "it")
    store.begin(plan)
    with held_back(plan, store), pytest.raises(Interrupted, match=r"Continue with: tophit compare"):
        run_workers(plan, store, 2, None, Impatient())
    assert 1 <= len(finished(plan, store)) < 9
    found = run_comparison(store, workers=2)
    assert found.seeds == 3
    assert len(finished(plan, store)) == 9


def test_only_one_holds_a_lock_and_a_finished_run_is_not_written_again(tmp_path: Path, toy_data: str) -> None:
    plan = toy_plan(toy_data)
    store = Store(tmp_path / "it")
    store.begin(plan)
    with store.lock("a", "seed-0") as first, store.lock("a", "seed-0") as second, store.lock("a", "seed-1") as other:
        assert (first, second, other) == (True, False, True)
    job = Job("ProxyAnchor", "seed", 0)
    do_job(job, plan, store, default_storage(store))
    with pytest.raises(TophitError, match=r"must not be counted twice"):
        do_job(job, plan, store, default_storage(store))


def test_a_candidate_that_fails_does_not_cost_the_others(tmp_path: Path, toy_data: str) -> None:
    plan = toy_plan(
        toy_data,
        candidates={
            "Good": {"baseline": True},
            "Bad": {"change": {"schedule": {"stop_above": -1.0}}, "search": {"optimizer.head.lr": [1e-3, 1e-4]}},
        },
        budget={"seeds": 1, "trials": 2, "epochs": 1},
    )
    store = Store(tmp_path / "it")
    store.begin(plan)
    work(store.folder)
    found = run_comparison(store, train=False)
    assert [row.name for row in found.rows] == ["Good"]
    assert "seed 0: TophitError: The loss became" in found.failed["Bad"]
    assert json.loads(store.trial_path("Bad", 1).read_text())["state"] == "failed"
    good = files_of(store)[str(store.result_path("Good", 0))]
    assert store.forget_failures(plan) == 1
    assert work(store.folder) == 1
    assert files_of(store)[str(store.result_path("Good", 0))] == good


def test_a_trial_that_ended_before_its_file_was_written_is_not_run_again(tmp_path: Path, toy_data: str) -> None:
    plan = toy_plan(toy_data, trials=2)
    store = Store(tmp_path / "it")
    store.begin(plan)
    storage = default_storage(store)
    search = make_search("ProxyAnchor", plan.candidates["ProxyAnchor"], 2, storage)
    assert search is not None
    trial = search.start(0)
    trial.finish(0.125, "complete")  # and then the process is killed
    do_job(Job("ProxyAnchor", "trial", 0), plan, store, storage)
    kept = json.loads(store.trial_path("ProxyAnchor", 0).read_text())
    assert kept == {"settings": trial.settings, "value": 0.125, "state": "complete"}
    again = search.start(1).settings
    assert search.start(1).settings == again  # one that was begun keeps its settings
    assert again != trial.settings


def test_a_worker_ends_when_the_command_that_started_it_is_gone(tmp_path: Path, toy_data: str) -> None:
    store = Store(tmp_path / "it")
    store.begin(toy_plan(toy_data))
    assert work(store.folder, None, parent=os.getppid() + 1) == 0


def test_a_bad_trial_is_stopped_early(tmp_path: Path, toy_data: str) -> None:
    """After trials that learn, one whose rate is 0 is below their median at its first evaluation."""
    plan = toy_plan(toy_data, trials=8, epochs=6)
    search = make_search("ProxyAnchor", plan.candidates["ProxyAnchor"], 8, str(tmp_path / "journal"))
    assert search is not None
    for slot in range(4):
        trial = search.start(slot)
        assert not trial.is_bad(3, 0.5 + 0.01 * slot)
        trial.finish(0.6, "complete")
    trial = search.start(4)
    assert trial.is_bad(3, 0.1)
    trial.finish(None, "pruned")
    states = [each.state for each in search.study.get_trials()]  # pyright: ignore
    assert states.count(optuna.trial.TrialState.PRUNED) == 1


def test_a_database_may_hold_the_trials(tmp_path: Path, toy_data: str) -> None:
    plan = toy_plan(toy_data, seeds=1, trials=2, epochs=1)
    store = Store(tmp_path / "it")
    store.begin(plan)
    storage = f"sqlite:///{tmp_path / 'trials.db'}"
    assert work(store.folder, storage) == 2 * 2 + 3
    assert len(optuna.get_all_study_names(storage)) == 2
    assert not Path(default_storage(store)).exists()


def test_a_search_without_optuna_says_what_to_install(
    tmp_path: Path, toy_data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    plan = toy_plan(toy_data, trials=3)
    with pytest.raises(UsageError, match=r"pip install 'tophit\[compare\]'; or use --trials 0"):
        make_search("ProxyAnchor", plan.candidates["ProxyAnchor"], 3, str(tmp_path / "journal"))
    grid = plan.candidates["ProxyAnchor"].model_copy(update={"search": {"loss.alpha": [1.0, 2.0, 3.0]}})
    search = make_search("grid", grid, 3, "")
    assert search is not None
    assert [search.start(slot).settings["loss.alpha"] for slot in range(3)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("trials", [0, 2])
def test_measured_runs_may_learn_from_all_classes_for_as_long_as_the_best_trial(
    tmp_path: Path, toy_data: str, trials: int
) -> None:
    plan = toy_plan(toy_data, budget={"seeds": 1, "trials": trials, "epochs": 4, "evaluations": 4, "all_classes": True})
    store = Store(tmp_path / "it")
    store.begin(plan)
    assert work(store.folder) == (1 + 2 * max(1, trials)) + 3
    for name in plan.candidates:
        kept = [json.loads(path.read_text()) for path in sorted(store.trial_path(name, 0).parent.iterdir())]
        best = max((each for each in kept if each["state"] == "complete"), key=lambda each: each["value"])
        result = store.result(name, 0)
        assert result is not None
        assert result["settings"] == best["settings"] | {"schedule.epochs": best["best_epoch"]}
        assert result["validation"] == {}
        assert result["best_epoch"] == best["best_epoch"]


def test_every_query_of_every_run_is_kept(tmp_path: Path, toy_data: str) -> None:
    plan = toy_plan(toy_data, seeds=1)
    store = Store(tmp_path / "it")
    store.begin(plan)
    work(store.folder)
    values, labels = store.per_query("ProxyAnchor", 0, "recall@1")
    result = store.result("ProxyAnchor", 0)
    assert result is not None
    assert len(values) == len(labels) == 100
    assert float(np.mean(values)) == pytest.approx(result["metrics"]["recall@1"])
    assert result["seconds"] > 0
    assert result["peak_memory"] > 50 * 2**20


@pytest.mark.parametrize("delay", [0.1, 0.4, 0.8, 1.2, 1.6, 2.4])
def test_a_worker_that_is_told_to_stop_at_its_start_ends(tmp_path: Path, toy_data: str, delay: float) -> None:
    """While compiled modules are imported they may swallow what a signal raises; it is remembered."""
    plan = toy_plan(toy_data, seeds=1)
    store = Store(tmp_path / "it")
    store.begin(plan)
    command = [sys.executable, "-m", "tophit.comparing.workers", str(store.folder), default_storage(store)]
    with held_back(plan, store):  # it would wait for the last job for ever
        worker = subprocess.Popen([*command, str(os.getpid())])
        time.sleep(delay)
        worker.send_signal(signal.SIGTERM)
        # by SIGTERM before it listens; by SIGINT, which a shell tells as 130 too, where the signal came while an import
        # ran exec, as dataclasses do: CPython then ends so whatever the program exits with
        assert worker.wait(120) in (Interrupted.exit_code, -signal.SIGTERM, -signal.SIGINT)
