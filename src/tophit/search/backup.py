"""Back up a catalogue, and restore it: a verified copy of all its versions, made while others write."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tophit.errors import TophitError, UsageError
from tophit.files import replace_file, write_checked_json
from tophit.search.backend import backend_facts
from tophit.search.local.acknowledged import now
from tophit.search.local.backing_up import Copied, copy_index
from tophit.search.maintenance import BACKUP_MARK, verify_catalogue
from tophit.search.versions import read_versions, write_versions


@dataclass(frozen=True)
class Backup:
    """What a backup or a restoration did."""

    versions: int
    copied: Copied


def back_up(folder: str | Path, out: str | Path) -> Backup:
    """Copy a catalogue to a folder, which may hold an earlier backup of it: then only what is new is copied.

    Writers go on meanwhile; each version is copied as it is at one moment.
    """
    folder, out = Path(folder), Path(out)
    if out.exists() and not (out / BACKUP_MARK).is_file() and any(out.iterdir()):
        raise UsageError(f"{out} holds other files; a backup needs a folder of its own, or one with an earlier backup.")
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{out} is inside of {folder}; keep the backup elsewhere, best on another disk.")
    out.mkdir(parents=True, exist_ok=True)
    write_checked_json(out / BACKUP_MARK, {"of": str(folder.absolute()), "begun": now()})
    made = _copy(folder, out)
    write_checked_json(out / BACKUP_MARK, {"of": str(folder.absolute()), "made": now()})
    return made


def restore(backup: str | Path, folder: str | Path) -> Backup:
    """Make a catalogue from a backup, in a folder that does not exist yet or is empty."""
    backup, folder = Path(backup), Path(folder)
    if not (backup / BACKUP_MARK).is_file():
        raise UsageError(f"{backup} is not a backup (no {BACKUP_MARK} there); make one with: tophit items backup")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty; restore to a new folder, then rename it.")
    folder.mkdir(parents=True, exist_ok=True)
    return _copy(backup, folder)


def _copy(folder: Path, out: Path) -> Backup:
    known = read_versions(folder)
    elsewhere = [name for name, one in known.versions.items() if not backend_facts(one.backend).in_folder]
    if elsewhere:
        raise UsageError(
            f"The vectors of {', '.join(elsewhere)} are on a server, not in {folder}: use the server's own backup."
        )
    copied = Copied()
    for name, version in known.versions.items():
        files = (path for path in (folder / name).rglob("*") if not path.is_relative_to(folder / version.location))
        copied += _copy_files(folder, out, files)
        copied += copy_index(folder / version.location, out / version.location)
    for path in out.glob("v*"):
        if path.name not in known.versions and path.is_dir():
            shutil.rmtree(path)
    write_versions(out, known)  # last: what it names is there
    problems = verify_catalogue(out)
    if problems:
        raise TophitError(f"The copy in {out} is not sound: {problems[0]} Verify {folder}, and try again.")
    return Backup(len(known.versions), copied)


def _copy_files(folder: Path, out: Path, paths: Iterable[Path]) -> Copied:
    """Copy files that differ: the embedder's and other small ones."""
    copied = Copied()
    for path in paths:
        target = out / path.relative_to(folder)
        if not path.is_file():
            continue
        size = path.stat().st_size
        if target.is_file() and target.read_bytes() == path.read_bytes():
            copied += Copied(kept=size)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(target) as temporary:
            shutil.copyfile(path, temporary)
        copied += Copied(written=size)
    return copied
