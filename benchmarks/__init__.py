"""Benchmarks: each module measures contenders side by side in one run and prints ratios. Run all with make bench."""

import statistics
import time
from collections.abc import Callable, Mapping


def side_by_side(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return each contender's median seconds over rounds in which all take turns, after one round to warm up.

    With ``time.process_time`` as the clock, what other processes do to the machine counts less.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            start = clock()
            run()
            if number:
                seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
