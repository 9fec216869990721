"""Counts and times for Prometheus, in its text format."""

import threading
from bisect import bisect_left
from collections import defaultdict

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_IMAGES = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """How many values lie at or below each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Return the lines of the text format; ``labels`` is like ``path="/search"``."""
        comma = "," if labels else ""
        lines, below = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{{labels}{comma}le="{bound}"}} {below}')
        braces = f"{{{labels}}}" if labels else ""
        return [*lines, f"{name}_sum{braces} {self.total:.6f}", f"{name}_count{braces} {below}"]


class Metrics:
    """What a server counted since it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: dict[str, Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self._stages: dict[str, Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self._passes = Histogram(_IMAGES)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; ``route`` is the pattern of its path, so that names stay few."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds[route].add(seconds)

    def stage(self, name: str, seconds: float) -> None:
        """Count the time spent on decode, embed or search."""
        with self._lock:
            self._stages[name].add(seconds)

    def forward_pass(self, images: int, seconds: float) -> None:
        """Count the images of a forward pass."""
        with self._lock:
            self._passes.add(images)

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """Return all in Prometheus' text format, with gauges (name: help, value) as they are now."""
        with self._lock:
            lines = ["# HELP tophit_requests_total Answered requests.", "# TYPE tophit_requests_total counter"]
            for (method, route, status), count in sorted(self._requests.items()):
                lines.append(f'tophit_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
            lines += ["# HELP tophit_request_seconds Time to answer.", "# TYPE tophit_request_seconds histogram"]
            for route, histogram in sorted(self._seconds.items()):
                lines += histogram.lines("tophit_request_seconds", f'route="{route}"')
            lines += ["# HELP tophit_stage_seconds Time in a stage.", "# TYPE tophit_stage_seconds histogram"]
            for stage, histogram in sorted(self._stages.items()):
                lines += histogram.lines("tophit_stage_seconds", f'stage="{stage}"')
            lines += ["# HELP tophit_batch_images Images in a forward pass.", "# TYPE tophit_batch_images histogram"]
            lines += self._passes.lines("tophit_batch_images")
        for name, (words, value) in gauges.items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"
