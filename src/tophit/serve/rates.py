"""How many requests a second each client may make."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tophit.serve.problems import Problem

_MOST_CLIENTS = 10_000
_BURST_SECONDS = 2.0


@dataclass
class _Bucket:
    left: float
    at: float


class Rates:
    """A bucket of requests for each client, which fills at its rate and holds those of two seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, who: str, rate: float) -> None:
        """Count a request, or raise a Problem that says when to come back."""
        now, most = self._clock(), max(1.0, rate * _BURST_SECONDS)
        bucket = self._buckets.setdefault(who, _Bucket(most, now))
        self._buckets.move_to_end(who)
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        bucket.left = min(most, bucket.left + rate * (now - bucket.at))
        bucket.at = now
        if bucket.left < 1:
            seconds = max(1, round((1 - bucket.left) / rate + 0.5))
            raise Problem(429, f"More than {rate:g} requests a second; wait a moment.", {"Retry-After": str(seconds)})
        bucket.left -= 1
