"""Ctrl-C and SIGTERM: the first asks for a stop after the current step, a second one stops at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether a stop was asked for."""

    asked = False


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a stop after the current step; a second one stops at once."""
    stop = Stop()

    def ask(signum: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs it handles signals
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
