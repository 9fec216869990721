"""What goes wrong in a request, as an HTTP status and one sentence."""

from collections.abc import Mapping


class Problem(Exception):
    """A request that can't be answered: a status, a sentence, and headers such as Retry-After."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def too_busy() -> Problem:
    """Return what a client is told that should come back in a moment."""
    return Problem(503, "The server is busy; try again in a second.", {"Retry-After": "1"})
