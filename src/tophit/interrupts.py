"""Ctrl-C and SIGTERM: never lost, even if an import swallows one; training stops after the current step."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_asked = False


def watch(*signals: int) -> None:
    """From now on, remember Ctrl-C or the given signals as well as raising KeyboardInterrupt."""
    for number in signals or (signal.SIGINT,):
        signal.signal(number, _remember)


def asked() -> bool:
    """Return whether Ctrl-C was pressed, or a watched signal came, since ``watch``."""
    return _asked


def check() -> None:
    """Raise the KeyboardInterrupt that something swallowed."""
    if _asked:
        raise KeyboardInterrupt


def _remember(signum: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt


class Stop:
    """Whether a stop was requested."""

    asked = False


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into KeyboardInterrupt, in a program that does not watch signals by itself too."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is _remember:  # which does the same, and remembers it
        yield
        return
    with _handled(stop):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    try:
        before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are handled there
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a stop after the current step; a second one stops at once."""
    stop = Stop()

    def ask(signum: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    with _handled(ask):
        yield stop
