"""What a server allows. Every limit has a default, can be set, and answers with a sentence when it is met."""

from dataclasses import dataclass, fields
from typing import Any, Self

from tophit.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """The limits of a server; bytes, pixels, seconds and numbers of things."""

    body_bytes: int = 20_000_000
    """Of a request's body, counted while it arrives."""
    json_bytes: int = 1_000_000
    """Of a body of JSON, or of a text field in a form."""
    files: int = 16
    """Images in one request."""
    pixels: int = 50_000_000
    side: int = 16_384
    ratio: float = 50.0
    """Of the long side of an image to the short one."""
    decode_seconds: float = 10.0
    decode_bytes: int = 1_500_000_000
    """Of memory for one process that decodes."""
    k: int = 1000
    vectors: int = 1024
    """Queries in one request that are vectors or ids."""
    results: int = 50_000
    """Results in one answer: queries times k."""
    upsert: int = 1000
    """Items in one call."""
    batch: int = 64
    """Images in one forward pass."""
    wait_seconds: float = 0.004
    """How long a forward pass waits for more images to join it."""
    queue: int = 64
    """Requests at work or waiting; those beyond are told to come back."""
    request_seconds: float = 30.0
    drain_seconds: float = 20.0
    notice_seconds: float = 1.0
    """How long a server that was told to stop says that it is not ready before it stops listening."""
    uploads: int = 256
    """Pictures that were searched with and are kept in memory, so that a search can be refined."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0 or (value == 0 and field.name not in ("wait_seconds", "notice_seconds")):
                raise UsageError(f"The limit {field.name} must be above 0, not {value}.")

    @classmethod
    def parse(cls, texts: list[str]) -> Self:
        """Read limits as typed, such as ``k=100``."""
        kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(cls)}
        given: dict[str, Any] = {}
        for text in texts:
            name, sign, value = text.partition("=")
            if name not in kinds or not sign:
                raise UsageError(
                    f"A limit is written like k=100; there is none in '{text}'. Names: {', '.join(kinds)}."
                )
            try:
                given[name] = kinds[name](value.replace("_", ""))
            except ValueError:
                raise UsageError(f"The limit {name} is a number, not '{value}'.") from None
        return cls(**given)
