"""Verify and repair a catalogue, without opening it: the file that names its versions, their embedders and indexes."""

from pathlib import Path

from tophit.errors import TophitError, UsageError
from tophit.files import read_checked_json
from tophit.search.backend import backend_facts, folder_backend
from tophit.search.index import Index
from tophit.search.local.snapshot import is_index, read_snapshot
from tophit.search.local.verifying import verify
from tophit.search.versions import (
    NAME,
    Version,
    Versions,
    embedder_files,
    is_catalogue,
    read_versions,
    write_versions,
)

BACKUP_MARK = "backup.json"
"""Says that a folder is a backup, of what and when."""


def verify_catalogue(folder: str | Path) -> list[str]:
    """Read every file of a catalogue, or of an index alone, and return what is wrong, one sentence each.

    A folder without an index is wrong use, not damage.
    """
    folder = Path(folder)
    if not is_catalogue(folder) and is_index(folder):
        return verify(folder)
    if not is_catalogue(folder) and _found_versions(folder).versions:
        return [f"{folder / NAME}, which names the versions, is missing."]
    try:
        known = read_versions(folder)
    except UsageError:
        raise
    except TophitError as error:
        return [str(error)]
    problems = [
        problem for path in (folder / BACKUP_MARK, *folder.glob("v*/loaded.json")) for problem in _wrong_json(path)
    ]
    for name, version in known.versions.items():
        problems += [f"Version {name}: {problem}" for problem in _embedder_problems(folder / name, version)]
        if _in_folder(version):
            problems += [f"Version {name}: {problem}" for problem in verify(folder / version.location)]
    if known.versions and not problems and not any(_in_folder(version) for version in known.versions.values()):
        raise UsageError(
            f"The vectors of {folder} are on a server: there are no files to check; its server takes care of both."
        )
    return problems


def _in_folder(version: Version) -> bool:
    return backend_facts(version.backend).in_folder


def repair_catalogue(folder: str | Path) -> list[str]:
    """Recover what can be recovered of every version; return what was done and lost, one sentence each."""
    folder = Path(folder)
    if not is_catalogue(folder) and is_index(folder):
        return Index.repair_folder(folder)
    report: list[str] = []
    try:
        known = read_versions(folder)
    except TophitError as error:
        known = _found_versions(folder)
        if not known.versions:
            raise
        write_versions(folder, known)
        report += [str(error), f"{NAME} was made again from the versions found; {known.current} is active."]
    for name, version in known.versions.items():
        if _in_folder(version):
            report += [f"Version {name}: {line}" for line in Index.repair_folder(folder / version.location)]
        problems = _embedder_problems(folder / name, version)
        report += [f"Version {name}: {problem} It can't be repaired; restore a backup." for problem in problems]
    return report


def _wrong_json(path: Path) -> list[str]:
    try:
        if path.exists():
            read_checked_json(path)
    except (OSError, ValueError) as error:
        return [f"{path} is damaged: {error}."]
    return []


def _embedder_problems(folder: Path, version: Version) -> list[str]:
    """Compare an embedder's files with the digests from when it was saved, or, of an older version, its fingerprint."""
    try:
        if version.files:
            found = embedder_files(folder)
            names = sorted(name for name, digest in version.files.items() if found.get(name) != digest)
            return [f"{folder.name}/{name} is missing or does not match its checksum." for name in names]
        from tophit.models.embedder import load  # here, because it imports torch

        if load(folder / "embedder").fingerprint() != version.fingerprint:
            return [f"The embedder in {folder} is not the one that made the index."]
    except TophitError as error:
        return [str(error)]
    except Exception as error:  # damaged bytes can make any reader fail in any way
        return [f"The embedder in {folder} can't be read: {error} ({type(error).__name__})."]
    return []


def _found_versions(folder: Path) -> Versions:
    """Return the versions whose indexes are in the folder; the newest is taken for the active one."""
    found: dict[str, Version] = {}
    for path in sorted(folder.glob("v*/index"), key=lambda one: (len(one.parent.name), one.parent.name)):
        name = path.parent.name
        for snapshot in ("index.json", "index.previous.json"):
            try:
                fingerprint = read_snapshot(path, snapshot).fingerprint
            except TophitError:
                continue
            found[name] = Version(folder_backend(), f"{name}/index", fingerprint)
            break
    names = list(found)
    return Versions(found, names[-1] if names else None, names[-2] if len(names) > 1 else None)
