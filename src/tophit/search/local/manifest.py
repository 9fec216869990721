"""The manifest ``index.json``: names the files in force, with their checksums, and is replaced last and atomically.

So a crash leaves the old or the new index. The manifest before it is kept, with its files, as ``index.previous.json``.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tophit.errors import TophitError, UsageError
from tophit.files import write_text

FORMAT = 2
NAME = "index.json"
PREVIOUS = "index.previous.json"


@dataclass(frozen=True)
class FileFacts:
    """How a file must look: bytes, and SHA-256 of its content."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class SegmentFacts:
    """An immutable segment: how many vectors, how they are searched, what was measured when it was tuned."""

    name: str
    count: int
    kind: str
    files: dict[str, FileFacts]
    tuning: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What an index consists of. Vectors with keys up to ``sealed`` are in the segments, later ones in the log."""

    version: int
    dim: int
    fingerprint: str
    database: str
    sealed: int = 0
    segments: tuple[SegmentFacts, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def files(self) -> set[str]:
        """Name the files in force."""
        return {self.database} | {name for segment in self.segments for name in segment.files}


def read_manifest(folder: Path, name: str = NAME) -> Manifest:
    """Read and check a manifest."""
    path = folder / name
    if not path.is_file():
        raise UsageError(f"There is no index in {folder} (no {name} there); make one with: tophit index")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TophitError(f"The index in {folder} is damaged: {name} is not a manifest ({error!r}).") from error
    if version == 1:
        raise TophitError(f"The index in {folder} was made by an older Tophit; build it anew with: tophit index")
    if version != FORMAT:
        raise TophitError(f"{path} has format {version}; this version of Tophit reads {FORMAT}.")
    if content.get("sha256") != _digest(content):
        raise TophitError(f"The index in {folder} is damaged: {name} does not match its checksum.")
    return _from_content(content)


def publish(folder: Path, manifest: Manifest) -> None:
    """Put a manifest in force, durably; the one before becomes the previous one."""
    path = folder / NAME
    if last_version(folder):  # a damaged one must not replace a good previous one
        write_text(folder / PREVIOUS, path.read_text(encoding="utf-8"))
    content = {"format": FORMAT, **asdict(manifest)}
    write_text(path, json.dumps({**content, "sha256": _digest(content)}, indent=2) + "\n")


def next_version(manifest: Manifest, **changes: Any) -> Manifest:
    """Return the manifest that follows, with changes."""
    return replace(manifest, version=manifest.version + 1, **changes)


def last_version(folder: Path) -> int:
    """Return the number of the version in force; 0 where there is none that can be read."""
    try:
        return read_manifest(folder).version
    except TophitError:
        return 0


def is_index(folder: str | Path) -> bool:
    """Say whether a folder holds an index."""
    return (Path(folder) / NAME).is_file()


def _digest(content: dict[str, Any]) -> str:
    plain = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _from_content(content: dict[str, Any]) -> Manifest:
    segments = tuple(
        SegmentFacts(**{**one, "files": {name: FileFacts(**facts) for name, facts in one["files"].items()}})
        for one in content["segments"]
    )
    plain = {name: value for name, value in content.items() if name not in ("format", "sha256", "segments")}
    return Manifest(**plain, segments=segments)
