"""The versions of a catalogue: each an embedder and the index it made; ``catalogue.json`` names the one in force.

A new model's vectors are built beside the old ones as a version of their own. Putting it in force replaces one small
file atomically; the version before it stays, for the way back.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tophit.errors import TophitError, UsageError
from tophit.files import write_text
from tophit.models.embedder import Embedder, load
from tophit.search.index import Index

NAME = "catalogue.json"
_FORMAT = 1
_TOKEN = "TOPHIT_MILVUS_TOKEN"


@dataclass(frozen=True)
class Version:
    """Where a version's vectors are. A local location is relative to the catalogue's folder.

    ``options`` open its index; ``made_with`` are those it was made with beside them.
    """

    engine: str
    location: str
    fingerprint: str
    options: dict[str, Any] = field(default_factory=dict)
    made_with: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Versions:
    """All versions by name, the one in force, and the one that was before it."""

    versions: dict[str, Version]
    current: str | None = None
    previous: str | None = None


@dataclass(frozen=True)
class EngineChoice:
    """Which engine a new catalogue uses: ``location`` is an address or DSN, ``name`` the collection's or table's.

    ``kind`` of index is the engine's word for it, such as hnsw; ``recall`` is what a large local one is tuned for.
    """

    engine: str = "local"
    location: str = ""
    name: str = "tophit"
    kind: str | None = None
    recall: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What the engine is told when it makes an index."""
        if self.recall is not None and self.engine != "local":
            raise UsageError(f"--recall tunes the local engine; {self.engine} is tuned by its kind of index.")
        kind = self.kind.upper() if self.kind and self.engine == "milvus" else self.kind
        named = {"kind" if self.engine == "local" else "index": kind, "recall": self.recall}
        return {name: value for name, value in named.items() if value is not None}


def is_catalogue(folder: str | Path) -> bool:
    """Say whether a folder holds a catalogue."""
    return (Path(folder) / NAME).is_file()


def read_versions(folder: str | Path) -> Versions:
    """Read the versions of a catalogue."""
    path = Path(folder) / NAME
    if not path.is_file():
        raise UsageError(f"There is no index in {folder} (no {NAME} there); make one with: tophit index")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields.pop("format") != _FORMAT:
            raise TophitError(f"{path} is of another format than this version of Tophit reads ({_FORMAT}).")
        return Versions(**{**fields, "versions": {name: Version(**v) for name, v in fields["versions"].items()}})
    except (ValueError, KeyError, TypeError) as error:
        raise TophitError(f"{path} is damaged: {error!r}.") from error


def write_versions(folder: str | Path, versions: Versions) -> None:
    """Put versions in force, atomically and durably."""
    write_text(Path(folder) / NAME, json.dumps({"format": _FORMAT, **asdict(versions)}, indent=2) + "\n")


def add_version(folder: str | Path, embedder: Embedder, choice: EngineChoice | None = None) -> str:
    """Make an empty version for an embedder, beside those there are, and return its name; nothing is switched.

    Without a choice it goes where the version in force is.
    """
    folder = Path(folder)
    known = read_versions(folder) if is_catalogue(folder) else Versions({})
    name = _new_name(folder, known)
    version = _version(choice or _choice_of(known), name, embedder.fingerprint())
    new = not is_catalogue(folder)
    if new and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files; an index needs a folder of its own.")
    (folder / name).mkdir(parents=True)
    try:
        if new:
            write_versions(folder, known)
        embedder.save(folder / name / "embedder")
        options = {**version.made_with, **version.options, **_secrets(version)}
        made = Index.create(
            _location(folder, version), embedder.dim, version.fingerprint, engine=version.engine, **options
        )
        made.close()
    except TophitError:  # such as an address where nothing answers: as if it had not been tried
        shutil.rmtree(folder / name)
        if new:
            (folder / NAME).unlink()
        raise
    write_versions(folder, replace(known, versions={**known.versions, name: version}))
    return name


def switch_version(folder: str | Path, name: str) -> None:
    """Put a version in force; the one before is kept."""
    known = read_versions(folder)
    if name not in known.versions:
        raise UsageError(f"{folder} has no version '{name}'; there are {', '.join(known.versions)}.")
    if name != known.current:
        write_versions(folder, replace(known, current=name, previous=known.current))


def roll_back(folder: str | Path) -> str:
    """Put the version in force that was before this one, and return its name."""
    previous = read_versions(folder).previous
    if previous is None:
        raise UsageError(f"{folder} has no version to go back to.")
    switch_version(folder, previous)
    return previous


def open_version(folder: str | Path, name: str | None = None, writable: bool = False) -> tuple[Index, Embedder]:
    """Open the index and the embedder of a version, by default the one in force; refuse a pair that does not fit."""
    folder = Path(folder)
    known = read_versions(folder)
    name = name or known.current
    if name is None:
        raise TophitError(f"The index in {folder} was begun but not finished; type the same tophit index again.")
    if name not in known.versions:
        raise UsageError(f"{folder} has no version '{name}'; there are {', '.join(known.versions)}.")
    version = known.versions[name]
    embedder = load(folder / name / "embedder")
    if embedder.fingerprint() != version.fingerprint:
        raise TophitError(f"The embedder in {folder / name} is not the one that made the index; build the index anew.")
    more: dict[str, Any] = {"writable": writable} if version.engine == "local" else {}
    index = Index.open(
        _location(folder, version),
        version.fingerprint,
        engine=version.engine,
        **{**version.options, **more, **_secrets(version)},
    )
    return index, embedder


def _new_name(folder: Path, known: Versions) -> str:
    """Return a name that no version has, nor one that was begun and never finished."""
    begun = {path.name for path in folder.glob("v*") if path.name[1:].isdecimal()}
    return f"v{1 + max((int(name[1:]) for name in begun | set(known.versions)), default=0)}"


def _version(choice: EngineChoice, name: str, fingerprint: str) -> Version:
    if choice.engine == "local":
        return Version("local", f"{name}/index", fingerprint, made_with=choice.options)
    if not choice.location:
        option = "--uri" if choice.engine == "milvus" else "--dsn"
        raise UsageError(f"The engine {choice.engine} needs an address: {option}.")
    key = "collection" if choice.engine == "milvus" else "table"
    return Version(
        choice.engine, _without_password(choice), fingerprint, {key: f"{choice.name}_{name}"}, choice.options
    )


def _choice_of(known: Versions) -> EngineChoice:
    """Return the engine of the version in force, for another beside it."""
    if known.current is None:
        return EngineChoice()
    version = known.versions[known.current]
    names = [str(value) for value in version.options.values()]
    name = names[0].rpartition("_")[0] if names else "tophit"
    made = version.made_with
    return EngineChoice(version.engine, version.location, name, made.get("kind", made.get("index")), made.get("recall"))


def _location(folder: Path, version: Version) -> str:
    return str(folder / version.location) if version.engine == "local" else version.location


def _secrets(version: Version) -> dict[str, str]:
    """Return what is not written down: Milvus's token comes from the environment, PostgreSQL reads its own."""
    token = os.environ.get(_TOKEN, "")
    return {"token": token} if version.engine == "milvus" and token else {}


def _without_password(choice: EngineChoice) -> str:
    """Return the address, refusing a password in it: the catalogue would keep it on the disk."""
    location = choice.location
    where = f"the environment variable {_TOKEN}" if choice.engine == "milvus" else "PGPASSWORD or ~/.pgpass"
    address = location.split("://", 1)[-1].rsplit("@", 1)
    if (len(address) == 2 and ":" in address[0] and not address[0].endswith(":")) or "password=" in location:
        raise UsageError(f"Leave the password out of the address, which is written to disk; give it in {where}.")
    return location
