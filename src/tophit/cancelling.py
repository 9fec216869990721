"""Work that can be given up: whoever wants its result sets an event, and the work looks at it between its parts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tophit.errors import TophitError

_wanted_no_more: ContextVar[threading.Event | None] = ContextVar("wanted_no_more", default=None)


class Cancelled(TophitError):
    """Nobody waits for this work any more."""


@contextmanager
def cancellable(event: threading.Event) -> Iterator[None]:
    """Let the work of a block be given up by setting an event, from any thread."""
    before = _wanted_no_more.set(event)
    try:
        yield
    finally:
        _wanted_no_more.reset(before)


def is_cancelled() -> bool:
    """Return whether nobody waits for the work that this thread does."""
    event = _wanted_no_more.get()
    return event is not None and event.is_set()


def check_cancelled() -> None:
    """Give up the work of this thread if nobody waits for it."""
    event = _wanted_no_more.get()  # not by is_cancelled: this runs before every search
    if event is not None and event.is_set():
        raise Cancelled("The work was given up: nobody waits for it any more.")
