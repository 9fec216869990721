"""Counts and times for Prometheus."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tophit.progress import resident_bytes

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOGETHER = (1, 2, 4, 8, 16, 32, 64)
CONTENT_TYPE = "text/plain; version=0.0.4"


class Metrics:
    """What a server counted since it started."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self._requests = Counter("tophit_requests", "Answered requests.", ["method", "route", "status"], registry=own)
        self._seconds = Histogram(
            "tophit_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, registry=own
        )
        self._stages = Histogram("tophit_stage_seconds", "Time in a stage.", ["stage"], buckets=_SECONDS, registry=own)
        self._passes = Histogram("tophit_batch_images", "Images in a forward pass.", buckets=_TOGETHER, registry=own)
        self._joined = Histogram("tophit_joined_searches", "Requests in a search.", buckets=_TOGETHER, registry=own)
        self._items = Gauge("tophit_items", "Items in the index.", registry=own)
        self._memory = Gauge("tophit_memory_bytes", "Resident memory of the process.", registry=own)
        self._memory.set_function(resident_bytes)
        self._connections = Gauge("tophit_connections", "Open connections.", registry=own)
        self._found: dict[tuple[Any, ...], Any] = {}

    def count_connections(self, count: Callable[[], int]) -> None:
        """Learn from where the number of open connections is known."""
        self._connections.set_function(count)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; ``route`` is the pattern of its path, so that there are few of them."""
        self._of(self._requests, method, route, status).inc()
        self._of(self._seconds, route).observe(seconds)

    def stage(self, name: str, seconds: float) -> None:
        """Count the time spent on decode, embed or search."""
        self._of(self._stages, name).observe(seconds)

    def _of(self, metric: Any, *labels: Any) -> Any:
        """Return a metric's part for some labels; the library's own search for it takes longer than the counting."""
        key = (metric, *labels)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = metric.labels(*labels)
        return found

    def forward_pass(self, images: int) -> None:
        """Count the images of a forward pass."""
        self._passes.observe(images)

    def joined_searches(self, requests: int) -> None:
        """Count the requests that one search answers."""
        self._joined.observe(requests)

    def text(self, items: int) -> bytes:
        """Return everything in Prometheus' text format, with the number of items in the index now."""
        self._items.set(items)
        return generate_latest(self._registry)
