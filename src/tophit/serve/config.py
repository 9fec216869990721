"""What a server serves, and its limits: each has a default, can be set, and is explained when a request exceeds it."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from tophit.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """The limits of a server; bytes, pixels, seconds and numbers of things."""

    connections: int = 1024
    """Open connections; where there are more, the oldest idle one is closed."""
    client_connections: int = 256
    """Of them from one address. Behind a proxy, which is one address, this is the proxy's limit."""
    header_bytes: int = 65_536
    """Of a request's address and headers."""
    header_seconds: float = 10.0
    """For a request's headers to arrive."""
    write_seconds: float = 10.0
    """How long an answer may lie unread."""
    unread_bytes: int = 128_000_000
    """Of answers that clients have not read yet, all together."""
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
    """Memory of one decoding process."""
    request_pixels: int = 200_000_000
    """Of all images of one request."""
    k: int = 1000
    values: int = 1000
    """That a filter compares with."""
    pairs: int = 10_000_000
    """Of candidates that re-ranking compares in one request: queries times candidates squared."""
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
    """Requests in progress or waiting; further ones are asked to try again later."""
    rate: float = 1000.0
    """Requests a second of one token, or of one address without a token. A line of the token file can set another."""
    request_seconds: float = 30.0
    drain_seconds: float = 20.0
    notice_seconds: float = 1.0
    """How long a stopping server reports that it is not ready before it stops listening."""
    uploads: int = 256
    """Query pictures kept in memory, so that a search can be refined."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value >= 0 or (value == 0 and each.name not in ("wait_seconds", "notice_seconds")):
                raise UsageError(f"The limit {each.name} must be above 0, not {value}.")

    @classmethod
    def parse(cls, texts: list[str]) -> Self:
        """Parse limits as typed, such as ``k=100``."""
        kinds: dict[str, Any] = {each.name: type(each.default) for each in fields(cls)}
        given: dict[str, Any] = {}
        for text in texts:
            name, sign, value = text.partition("=")
            if not sign:
                raise UsageError(f"A limit is written like k=100, not '{text}'.")
            if name not in kinds:
                raise UsageError(f"There is no limit '{name}'; choices: {', '.join(kinds)}.")
            try:
                given[name] = kinds[name](value.replace("_", ""))
            except ValueError:
                raise UsageError(f"The limit {name} is a number, not '{value}'.") from None
        return cls(**given)


@dataclass(frozen=True)
class Shared:
    """What several processes of one server share: a folder of their own, which of them this is, the key of names.

    Number 0 is the one that may write.
    """

    folder: Path
    number: int
    key: bytes

    @property
    def socket(self) -> Path:
        """Where the first process takes changes from the others."""
        return self.folder / "changes.socket"

    @property
    def trouble(self) -> Path:
        """Where the first process says why writes fail."""
        return self.folder / "trouble"

    @property
    def rates(self) -> Path:
        """Where they count requests together."""
        return self.folder / "rates"


@dataclass(frozen=True)
class ServeConfig:
    """What a server serves: an index, perhaps a second one to compare with, the run that trained the model, images."""

    folder: Path
    against: Path | None = None
    run: Path | None = None
    images: Path | None = None
    writable: bool = False
    audit_log: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    workers: int = 1
    shared: Shared | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def own_folder(self) -> Path:
        """Where the server keeps what it needs beside the index."""
        return self.folder / "serve"
