"""What goes wrong in a request, as an HTTP status and one sentence."""

import errno
import logging
from collections.abc import Mapping

from tophit.cancelling import Cancelled
from tophit.errors import DiskFull, TophitError, UsageError

log = logging.getLogger("tophit.serve")
_LATER = {"Retry-After": "5"}


class Problem(Exception):
    """A request that can't be answered: a status, a sentence, and headers such as Retry-After."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def too_busy() -> Problem:
    """Return the answer to a client that should try again in a moment."""
    return Problem(503, "The server is busy; try again in a second.", {"Retry-After": "1"})


def stopping() -> Problem:
    """Return the answer of a server that stops."""
    return Problem(503, "The server is stopping.", _LATER)


def missing_package(error: ImportError) -> TophitError:
    """Return the error for a package that serving needs and that is not installed."""
    return TophitError(f"Serving needs packages that are not installed ({error.name}): pip install 'tophit[serve]'")


def is_full(error: BaseException | None) -> bool:
    """Return whether an error says that the disk, or the user's share of it, is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, DiskFull) or (isinstance(error, TophitError) and is_full(error.__cause__))


def problem_of(error: Exception) -> Problem:
    """Return what a client may know about an error; the details of an unexpected one go only to the log."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UsageError):
        return Problem(422, str(error))
    if isinstance(error, Cancelled):
        return stopping()
    if is_full(error):
        log.error("%s", error)
        return Problem(507, "The disk is full, so nothing was written; try again when there is room.", _LATER)
    if isinstance(error, TophitError):
        log.error("%s", error)
        return Problem(503, "The index can't do this now; the server's log says why.", _LATER)
    log.exception("unexpected error")
    return Problem(500, "Something unexpected went wrong; the server's log says what.")
