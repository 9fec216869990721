"""Workers: processes that do the jobs of a comparison until none is left, on one machine or many.

``python -m tophit.comparing.workers FOLDER STORAGE PARENT`` is one worker.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tophit import interrupts
from tophit.comparing.jobs import Job, clear_work, do_job, is_ready, jobs_of
from tophit.comparing.plan import Plan
from tophit.comparing.store import Store
from tophit.errors import Interrupted, TophitError
from tophit.progress import View

_WAIT = 0.3  # seconds between checks of what other workers have done


def work(folder: str | Path, storage: str | None = None, parent: int | None = None) -> int:
    """Do jobs of the comparison in a folder until all are done; return how many this process did.

    With ``parent`` it also ends, between jobs, when that process is no longer its parent because it was killed.
    """
    store = Store(Path(folder))
    plan = store.plan()
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    place = storage or default_storage(store)
    jobs = list(jobs_of(plan))
    _tidy(jobs, plan, store)
    left = [job for job in jobs if not job.is_done(store)]
    done = 0
    while left and parent in (None, os.getppid()):
        interrupts.check()
        job = _take(left, plan, store, place)
        done += job is not None
        left = [each for each in left if not each.is_done(store)]
        if job is None and left:
            time.sleep(_WAIT)  # other workers do what is left, or it depends on theirs
    return done


def default_storage(store: Store) -> str:
    """Return where Optuna stores its trials: a journal in the comparison's folder, which machines may share."""
    return str(store.folder / "search.journal")


def _tidy(jobs: list[Job], plan: Plan, store: Store) -> None:
    """Put away the runs of processes that were killed after they had written the result."""
    for job in jobs:
        if job.is_done(store) and store.work_path(job.name, job.label).is_dir():
            with store.lock(job.name, job.label) as mine:
                if mine:
                    clear_work(job, plan, store)


def _take(left: list[Job], plan: Plan, store: Store, storage: str) -> Job | None:
    """Do the first job that is ready and that no other process does; return it, or None if there is none."""
    for job in left:
        if job.is_done(store) or not is_ready(job, plan, store):
            continue
        with store.lock(job.name, job.label) as mine:
            if mine and not job.is_done(store):  # another process may have finished it meanwhile
                do_job(job, plan, store, storage)
                return job
    return None


def run_workers(
    plan: Plan, store: Store, workers: int, storage: str | None, view: View, command: str = "tophit compare"
) -> None:
    """Start worker processes with one thread each, show their progress, and wait until all jobs are done.

    ``command`` is what continues the work in its folder, for messages.
    """
    jobs = list(jobs_of(plan))
    left = [job for job in jobs if not job.is_done(store)]
    if not left:
        return
    if len(left) < len(jobs):
        view.note(f"{len(jobs) - len(left)} of {len(jobs)} runs are finished already; {len(left)} to go.")
    again = f"Continue with: {command} {store.folder}"
    worker = [sys.executable, "-m", "tophit.comparing.workers", str(store.folder), storage or default_storage(store)]
    worker.append(str(os.getpid()))
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    processes = [
        subprocess.Popen(worker, env=environment, start_new_session=True) for _ in range(min(workers, len(left)))
    ]
    try:
        for _ in view.track("Runs")(_finished(left, processes, store, again), len(left)):
            pass
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped; finished runs are kept. {again}") from None
    finally:
        _end(processes)


def _finished(left: list[Job], processes: "list[subprocess.Popen[bytes]]", store: Store, again: str) -> Iterator[Job]:
    """Yield every job when it is done; raise if all workers have ended before."""
    while left:
        still = []
        for job in left:
            if job.is_done(store):
                yield job
            else:
                still.append(job)
        left = still
        if left and all(process.poll() is not None for process in processes):
            codes = {process.returncode for process in processes} - {0}
            if codes or not all(job.is_done(store) for job in left):
                raise TophitError(
                    f"All workers ended (exit codes {sorted(codes)}) with {len(left)} runs to go; see above. {again}"
                )
        time.sleep(_WAIT)


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    """Ask the workers to stop, which writes checkpoints, and wait for them."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Work until nothing is left; a signal stops after the current step, with a checkpoint."""
    try:
        interrupts.watch(signal.SIGINT, signal.SIGTERM)
        folder, storage, parent = sys.argv[1:]
        work(folder, storage, int(parent))
    except (Interrupted, KeyboardInterrupt):
        sys.exit(Interrupted.exit_code)
    except TophitError as error:
        print(f"Worker: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
