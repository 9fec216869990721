"""The versions of a catalogue: each is an embedder and the index it made; ``catalogue.json`` names the active one.

A new model's vectors are built beside the old ones as a version of their own. Activating it replaces one small file
atomically; the version before is kept, so that one can go back.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tophit.calibrating import read_calibration
from tophit.data.item_rows import deepest_folder
from tophit.errors import TophitError, UsageError
from tophit.files import read_checked_json, write_checked_json
from tophit.registry import names
from tophit.search.backend import BackendFacts, backend_facts, check_kind, folder_backend
from tophit.search.credentials import (
    credentials,
    from_environment,
    refuse_password,
    remember_address,
    shown,
    withheld,
)
from tophit.search.index import Index
from tophit.search.local.budget import check_budget
from tophit.search.query_embedder import QueryEmbedder, load_checked

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

NAME = "catalogue.json"
_FORMAT = 1
_NAME_START = "tophit"


@dataclass(frozen=True)
class Version:
    """Where a version's vectors are. The location of a backend's own folder is relative to the catalogue's.

    ``options`` open its index; ``made_with`` are the further options it was created with, or has been given since.
    ``files`` are the SHA-256 of the embedder's files.
    """

    backend: str
    location: str
    fingerprint: str
    options: dict[str, Any] = field(default_factory=dict)
    made_with: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Versions:
    """All versions by name, the active one, the one that was active before it, and the folder of the images.

    That is the deepest folder that held all images when the index was made; older catalogues do not name it.
    """

    versions: dict[str, Version]
    current: str | None = None
    previous: str | None = None
    images: str | None = None


@dataclass(frozen=True)
class IndexOptions:
    """How an index is made: in which backend, at which address, and the start of its name there.

    ``kind`` is the backend's word for a kind of index, such as hnsw. ``recall`` is what a large index is tuned for,
    where the backend can do that; ``memory`` and ``build`` are its budget, such as 2GB and 5min. These four count for
    an existing index of such a backend too, from its next compaction. Without a ``backend`` the index is kept in the
    catalogue's folder.
    """

    backend: str | None = None
    location: str = ""
    name: str | None = None
    kind: str | None = None
    recall: float | None = None
    memory: str | None = None
    build: str | None = None

    @property
    def backend_name(self) -> str:
        """The backend, or the one that is the default."""
        return self.backend or folder_backend()

    @property
    def facts(self) -> BackendFacts:
        """What the backend says about itself."""
        return backend_facts(self.backend_name)

    @property
    def budget(self) -> dict[str, str]:
        """What is given of memory and build."""
        return {name: value for name, value in (("memory", self.memory), ("build", self.build)) if value}


def is_catalogue(folder: str | Path) -> bool:
    """Return whether a folder holds a catalogue."""
    return (Path(folder) / NAME).is_file()


def read_versions(folder: str | Path) -> Versions:
    """Read the versions of a catalogue."""
    path = Path(folder) / NAME
    if not path.is_file():
        raise UsageError(f"There is no index in {folder} (no {NAME} there); make one with: tophit index")
    try:
        fields = read_checked_json(path)
        if fields.pop("format") != _FORMAT:
            raise TophitError(f"{path} is of another format than this version of Tophit reads ({_FORMAT}).")
        versions = {name: Version(v.pop("engine"), **v) for name, v in fields.pop("versions").items()}
        return Versions(versions, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TophitError(f"{path} is damaged: {error!r}.") from error


def write_versions(folder: str | Path, versions: Versions) -> None:
    """Write the versions, atomically and durably."""
    fields = {"format": _FORMAT, **asdict(versions)}
    fields["versions"] = {name: {"engine": v.pop("backend"), **v} for name, v in fields["versions"].items()}
    write_checked_json(Path(folder) / NAME, fields)


def embedder_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of the embedder in the folder of a version, by its path there."""
    found: dict[str, str] = {}
    for path in sorted((folder / "embedder").rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def add_version(folder: str | Path, embedder: "Embedder", options: IndexOptions | None = None) -> str:
    """Create an empty version for an embedder beside the existing ones and return its name; nothing is switched.

    Without options it is made like the active version.
    """
    folder = Path(folder)
    known = read_versions(folder) if is_catalogue(folder) else Versions({})
    name = _new_name(folder, known)
    version = _version(options or _options_of(known), name, embedder.fingerprint())
    new = not is_catalogue(folder)
    if new and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files; an index needs a folder of its own.")
    own_folder = new and not folder.exists()
    (folder / name).mkdir(parents=True)
    try:
        if new:
            write_versions(folder, known)
        embedder.save(folder / name / "embedder")
        calibration = None if embedder.folder is None else read_calibration(embedder.folder, version.fingerprint)
        if calibration is not None:
            calibration.save(folder / name / "embedder")
        facts = backend_facts(version.backend)
        # Without options the address is that of the file alone.
        secrets = from_environment(facts) if options is not None else credentials(version.backend, version.location)
        given = {**version.made_with, **version.options, **secrets}
        Index.create(
            _location(folder, version), embedder.dim, version.fingerprint, backend=version.backend, **given
        ).close()
        version = replace(version, files=embedder_files(folder / name))
        if options is not None and not facts.in_folder:
            remember_address(version.location)
    except TophitError:  # such as an address where nothing answers: leave no trace of the attempt
        shutil.rmtree(folder / name)
        if new:
            (folder / NAME).unlink(missing_ok=True)
        if own_folder:
            folder.rmdir()
        raise
    write_versions(folder, replace(known, versions={**known.versions, name: version}))
    return name


def check_options(folder: str | Path, options: IndexOptions) -> None:
    """Refuse, before any work, options that a new index can't take, or none of the versions of an existing one."""
    known = read_versions(folder).versions if is_catalogue(folder) else {}
    if not known:
        _version(options, "v1", "")
        return
    refused: list[UsageError] = []
    for name in known:
        try:
            options_to_open(folder, name, options)
        except UsageError as error:
            refused.append(error)
    if len(refused) == len(known):
        raise refused[-1]


def options_to_open(folder: str | Path, name: str, options: IndexOptions) -> dict[str, Any]:
    """Return the options that count for an existing version from its next compaction; refuse what it can't become."""
    version = read_versions(folder).versions[name]
    facts = backend_facts(version.backend)
    _check_made(version.backend, options)
    there = {"--backend": version.backend}
    given = {"--backend": options.backend, facts.address: options.location or None, "--name": options.name}
    if not facts.in_folder:
        there |= {facts.address: version.location, "--name": _name_start(version)}
    if not facts.tunes_recall:
        there["--kind"] = version.made_with.get(facts.kind_option, "".join(facts.kinds[:1]))
        given["--kind"] = options.kind and options.kind.lower()
    wrong = [option for option, value in given.items() if value is not None and value != there.get(option)]
    if wrong:
        made = ", ".join(f"{option} {shown(value)}" for option, value in there.items() if value)
        raise UsageError(
            f"The index in {folder} exists already, made with {made}: leave {' and '.join(wrong)} out, or make another "
            "index with another --out."
        )
    return _made_with(facts, options) if facts.tunes_recall else {}


def keep_images_folder(folder: str | Path, paths: Iterable[str | Path]) -> None:
    """Note where the images are, while the index is made for the first time; later it stays as it is."""
    known = read_versions(folder)
    if known.current is None and known.images is None:
        images = deepest_folder(os.path.dirname(os.path.abspath(path)) for path in paths)
        write_versions(folder, replace(known, images=images))


def switch_version(folder: str | Path, name: str) -> None:
    """Activate a version; the one before is kept."""
    known = read_versions(folder)
    if name not in known.versions:
        raise UsageError(f"{folder} has no version '{name}'; there are {', '.join(known.versions)}.")
    if name != known.current:
        write_versions(folder, replace(known, current=name, previous=known.current))


def roll_back(folder: str | Path) -> str:
    """Activate the version that was active before this one, and return its name."""
    previous = read_versions(folder).previous
    if previous is None:
        raise UsageError(f"{folder} has no version to go back to.")
    switch_version(folder, previous)
    return previous


def open_version(
    folder: str | Path, name: str | None = None, writable: bool = False, **options: Any
) -> "tuple[Index, Embedder]":
    """Open the index and the embedder of a version, by default the active one; refuse a pair that does not fit."""
    index, place = _open_index(Path(folder), name, writable, options)
    return index, load_checked(place, index.fingerprint)


def open_for_queries(folder: str | Path, writable: bool = False, **options: Any) -> tuple[Index, QueryEmbedder]:
    """Open the active version for a few searches: its embedder is loaded when it is needed, without torch if it can."""
    index, place = _open_index(Path(folder), None, writable, options)
    return index, QueryEmbedder(place, index.fingerprint)


def _open_index(
    folder: Path, name: str | None, writable: bool, options: Mapping[str, Any] | None = None
) -> tuple[Index, Path]:
    """Open the index of a version, and return the version's folder too."""
    known = read_versions(folder)
    name = name or known.current
    if name is None:
        raise TophitError(f"The index in {folder} is unfinished; run the same tophit index command again.")
    if name not in known.versions:
        raise UsageError(f"{folder} has no version '{name}'; there are {', '.join(known.versions)}.")
    version = known.versions[name]
    facts = backend_facts(version.backend)
    if options and not facts.tunes_recall:
        raise UsageError(f"{_names(options)}: only for the {folder_backend()} backend, not for {version.backend}.")
    more: dict[str, Any] = {"writable": writable} if facts.in_folder else {}
    secrets = {} if more else credentials(version.backend, version.location)
    given = {**version.options, **more, **secrets, **(options or {})}
    try:
        index = Index.open(_location(folder, version), version.fingerprint, backend=version.backend, **given)
    except TophitError as error:
        hint = withheld(version.backend, version.location)
        raise type(error)(f"{error} {hint}") if hint else error from error.__cause__
    if options:
        _keep_options(folder, name, options)
    return index, folder / name


def _keep_options(folder: Path, name: str, options: Mapping[str, Any]) -> None:
    """Keep the options that a version's index was given, for the version that follows it."""
    known = read_versions(folder)  # again: opening may have waited, and another version may be active by now
    version = known.versions[name]
    made_with = {**version.made_with, **options}
    if made_with != version.made_with:
        changed = replace(version, made_with=made_with)
        write_versions(folder, replace(known, versions={**known.versions, name: changed}))


def _new_name(folder: Path, known: Versions) -> str:
    """Return a name that no version has, not even an unfinished one."""
    taken = {path.name for path in folder.glob("v*") if path.name[1:].isdecimal()}
    return f"v{1 + max((int(name[1:]) for name in taken | set(known.versions)), default=0)}"


def _version(options: IndexOptions, name: str, fingerprint: str) -> Version:
    backend, facts = options.backend_name, options.facts
    _check_made(backend, options)
    made_with = _made_with(facts, options)
    if facts.in_folder:
        _refuse_address(backend, options)
        return Version(backend, f"{name}/index", fingerprint, made_with=made_with)
    if not options.location:
        raise UsageError(f"The backend {backend} needs an address: {facts.address}.")
    refuse_password(facts, options.location)
    named = {facts.named_by: f"{options.name or _NAME_START}_{name}"}
    return Version(backend, options.location, fingerprint, named, made_with)


def _check_made(backend: str, options: IndexOptions) -> None:
    """Refuse a kind that a backend does not have, and a recall or a budget for one that does not tune itself."""
    check_budget(options.memory, options.build)
    facts = backend_facts(backend)
    if options.kind is not None:
        check_kind(backend, options.kind.lower())  # some backends take capitals too
    if facts.tunes_recall:
        return
    if options.recall is not None:
        raise UsageError(f"--recall tunes the {folder_backend()} backend; {backend} is tuned by its kind of index.")
    if options.budget:
        raise UsageError(f"{_names(options.budget)}: only for the {folder_backend()} backend, not for {backend}.")


def _refuse_address(backend: str, options: IndexOptions) -> None:
    """Refuse an address or a name for a backend that keeps its files in the index's folder."""
    if options.location or options.name is not None:
        servers = [name for name in names("backend") if not backend_facts(name).in_folder]
        raise UsageError(
            f"The {backend} backend keeps the vectors in the index's own folder and takes no address (--uri, --dsn) "
            f"and no --name: leave them out, or name another --backend ({', '.join(servers)})."
        )


def _made_with(facts: BackendFacts, options: IndexOptions) -> dict[str, Any]:
    """Return the options of a backend that were given."""
    given = {facts.kind_option: options.kind, "recall": options.recall, **options.budget}
    return {key: value for key, value in given.items() if value is not None}


def _name_start(version: Version) -> str:
    """Return what the names of a version's collection or table and of its successors start with."""
    return str(version.options.get(backend_facts(version.backend).named_by, "")).rpartition("_")[0] or _NAME_START


def _names(options: Mapping[str, Any]) -> str:
    return " and ".join(f"--{name}" for name in options)


def _options_of(known: Versions) -> IndexOptions:
    """Return the options of the active version, for another beside it."""
    if known.current is None:
        return IndexOptions()
    version = known.versions[known.current]
    facts, made = backend_facts(version.backend), version.made_with
    place = ("", None) if facts.in_folder else (version.location, _name_start(version))
    more = {option: made.get(option) for option in ("recall", "memory", "build")}
    return IndexOptions(version.backend, *place, made.get(facts.kind_option), **more)


def _location(folder: Path, version: Version) -> str:
    return str(folder / version.location) if backend_facts(version.backend).in_folder else version.location
