"""Ctrl-C is never lost, even if it comes while a compiled module is being imported and swallows it."""

import signal
from types import FrameType

_asked = False


def watch(*signals: int) -> None:
    """From now on remember Ctrl-C, or the given signals, beside raising KeyboardInterrupt."""
    for number in signals or (signal.SIGINT,):
        signal.signal(number, _remember)


def asked() -> bool:
    """Say whether Ctrl-C was pressed, or a watched signal came, since ``watch``."""
    return _asked


def check() -> None:
    """Raise the KeyboardInterrupt that something swallowed."""
    if _asked:
        raise KeyboardInterrupt


def _remember(signum: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt
