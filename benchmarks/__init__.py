"""Benchmarks: each module measures contenders side by side in one run and prints ratios. Run all with make bench."""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def side_by_side(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return each contender's median seconds over rounds in which all take turns, after one round to warm up.

    With ``clock=time.process_time`` they are seconds of CPU time: for work in one process on a busy machine.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            start = clock()
            run()
            if number:
                seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_rise(run: Callable[[], object]) -> float:
    """Return by how many MiB a call raises the process's peak resident size; linux only, best in a fresh process."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])
