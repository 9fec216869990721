"""Power loss at every moment of an index's life: whatever was not flushed to the disk may be gone.

``python -m benchmarks.power_loss [OPERATIONS]`` runs a writer whose every write, flush and rename is recorded by a
small library (record_writes.c, made with the C compiler). Then it plays the record up to each point, and makes the
disks that a power failure there may leave:

- ``lost``: nothing that was not flushed is there, neither content nor names;
- ``kept``: all of it is there, as after a kill;
- ``mixed``: of each file some unflushed writes, the last one torn; of each folder some of the newest names.

Each of these disks must open, verify, and hold every acknowledged write. The one in flight is there or not.
"""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.search.churn import DIM, State, apply, carry_out

from tophit.search import Index

_HEAD = struct.Struct("<ciqII")
_ACKNOWLEDGED = "acknowledged.txt"
POLICIES = ("lost", "kept", "mixed")


@dataclass
class File:
    """A file's content: on the disk, as programs see it, and the writes between the two."""

    durable: bytearray = field(default_factory=bytearray)
    seen: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def change(self, offset: int, data: bytes | None) -> None:
        """Write data at an offset; with None, set the length to it."""
        _put(self.seen, offset, data)
        self.pending.append((offset, data))

    def flush(self) -> None:
        """Bring everything to the disk."""
        self.durable, self.pending = bytearray(self.seen), []

    def mixed(self, random: np.random.Generator) -> bytes:
        """Return what may be on the disk: any of the unflushed writes, the last of them torn."""
        content = bytearray(self.durable)
        chosen = [change for change in self.pending if random.random() < 0.5]
        for number, (offset, data) in enumerate(chosen):
            torn = data is not None and number == len(chosen) - 1 and len(data) > 1
            _put(content, offset, data[: random.integers(1, len(data))] if torn and data else data)
        return bytes(content)


def _put(content: bytearray, offset: int, data: bytes | None) -> None:
    size = offset if data is None else offset + len(data)
    if data is None:
        del content[size:]
    content.extend(b"\0" * (size - len(content)))
    if data is not None:
        content[offset:size] = data


class Disk:
    """Files by name in one folder: the names on the disk, those that programs see, and the changes between the two."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: dict[str, File] = {}
        self.durable: dict[str, File] = {}
        self.pending: list[tuple[str, File | None]] = []
        self.acknowledged = 0
        self._open: dict[int, File | None] = {}

    def play(self, kind: str, fd: int, number: int, one: bytes, two: bytes) -> None:
        """Do what a record says."""
        if kind == "o":
            self._open[fd] = self._opened(one.decode(), number)
        elif kind == "c":
            self._open.pop(fd, None)
        elif kind in "wt":
            file = self._open.get(fd)
            if file is not None:
                file.change(number, one if kind == "w" else None)
        elif kind == "s":
            file = self._open.get(fd)
            if file is not None:
                file.flush()
            elif fd in self._open:  # the folder
                self.durable, self.pending = dict(self.names), []
        elif kind == "r":
            self._name(two.decode(), self.names[self._short(one.decode())])
            self._name(one.decode(), None)
        elif kind == "u":
            self._name(one.decode(), None)
        if _ACKNOWLEDGED in self.names:
            self.acknowledged = self.names[_ACKNOWLEDGED].seen.count(b"\n")

    def after(self, policy: str, random: np.random.Generator) -> dict[str, bytes]:
        """Return a disk that a power failure now may leave: content by name."""
        if policy == "kept":
            return {name: bytes(file.seen) for name, file in self.names.items()}
        if policy == "lost":
            return {name: bytes(file.durable) for name, file in self.durable.items()}
        names = dict(self.durable)
        for name, file in self.pending[: random.integers(0, len(self.pending) + 1)]:
            _set(names, name, file)
        return {name: file.mixed(random) for name, file in names.items()}

    def _short(self, path: str) -> str:
        return path.removeprefix(self.folder).lstrip("/")

    def _name(self, path: str, file: File | None) -> None:
        name = self._short(path)
        _set(self.names, name, file)
        self.pending.append((name, file))

    def _opened(self, path: str, flags: int) -> File | None:
        name = self._short(path)
        if not name or "/" in name:
            return None
        if name not in self.names:
            if not flags & os.O_CREAT:
                return None
            self._name(path, File())
        if flags & os.O_TRUNC and self.names[name].seen:
            self.names[name].change(0, None)
        return self.names[name]


def _set(names: dict[str, File], name: str, file: File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file


def records(path: Path) -> Iterator[tuple[str, int, int, bytes, bytes]]:
    """Read the records that record_writes.c wrote."""
    content = path.read_bytes()
    place = 0
    while place < len(content):
        kind, fd, number, n1, n2 = _HEAD.unpack_from(content, place)
        place += _HEAD.size
        yield kind.decode(), fd, number, content[place : place + n1], content[place + n1 : place + n1 + n2]
        place += n1 + n2


def record(folder: Path, operations: int) -> tuple[Path, str]:
    """Run a writer and record it; return the records and the folder's name in them."""
    library, written, index = folder / "record_writes.so", folder / "records", folder / "index"
    source = Path(__file__).with_name("record_writes.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    own = {"LD_PRELOAD": str(library), "TOPHIT_RECORD_FOLDER": str(index), "TOPHIT_RECORD_TO": str(written)}
    subprocess.run(
        [sys.executable, "-m", "benchmarks.power_loss", "--write", str(index), str(operations)],
        check=True,
        env=os.environ | own,
    )
    return written, str(index)


def write(folder: Path, operations: int) -> None:
    """Work through numbered operations, and write a line after each: acknowledged."""
    from tophit.search.local import local_backend

    local_backend.SEAL_AT = 100  # so that segments are made all the time
    index = Index.create(folder, DIM, exact_below=150)
    said = os.open(folder / _ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(said, b"made\n")
    for number in range(1, operations + 1):
        index = carry_out(index, folder, number)
        os.write(said, f"{number}\n".encode())
    index.close()


def crash_points(
    written: Path, folder: str, every: int = 1, seed: int = 0
) -> Iterator[tuple[int, str, int, dict[str, bytes]]]:
    """Yield the disks that power failures leave: after which record, how, how many writes were acknowledged, files."""
    random = np.random.default_rng(seed)
    disk = Disk(folder)
    for number, one in enumerate(records(written)):
        disk.play(*one)
        if disk.acknowledged and number % every == 0:
            for policy in POLICIES:
                yield number, policy, disk.acknowledged - 1, disk.after(policy, random)


def contents(folder: Path) -> State:
    """Return what an index holds, after verifying it."""
    with Index.open(folder) as index:
        problems = index.verify()
        if problems:
            raise AssertionError(problems)
        return {item.id: (item.vector.tobytes(), item.metadata) for item in index.items()}


def survives(files: dict[str, bytes], scratch: Path, states: list[State], acknowledged: int) -> str:
    """Return what is wrong with a disk; nothing if it opens with all that was acknowledged, and can be written to."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name, content in files.items():
        if not name.endswith("-shm") and name != _ACKNOWLEDGED:
            (scratch / name).write_bytes(content)
    try:
        found = contents(scratch)
        if found not in states[acknowledged : acknowledged + 2]:
            return f"it holds {len(found)} items that are neither those before nor those after write {acknowledged + 1}"
        with Index.open(scratch, writable=True) as index:
            index.upsert(["after the crash"], np.ones((1, DIM)))
        if len(contents(scratch)) != len(found) + 1:
            return "a write after the crash is lost"
    except Exception as error:  # whatever it is, it is a failure to report with its crash point
        return f"{type(error).__name__}: {error}"
    return ""


def simulate(folder: Path, operations: int, every: int = 1) -> tuple[int, list[str]]:
    """Record a writer and try every crash point; return how many there were, and the failures."""
    written, name = record(folder, operations)
    states: list[State] = [{}]
    for number in range(1, operations + 1):
        states.append(apply(states[-1], number))
    tried, failures = 0, list[str]()
    before: Any = None
    for number, policy, acknowledged, files in crash_points(written, name, every):
        if (files, acknowledged) == before:
            continue  # the same disk again is no further crash point
        before = files, acknowledged
        tried += 1
        problem = survives(files, folder / "scratch", states, acknowledged)
        if problem:
            failures.append(f"after record {number}, {policy}, {acknowledged} acknowledged: {problem}")
    return tried, failures


def main(operations: int) -> None:
    """Simulate and print."""
    with tempfile.TemporaryDirectory() as temporary:
        tried, failures = simulate(Path(temporary), operations)
    print(f"{operations} operations, {tried} crash points, {len(failures)} of them lost something or did not open")
    for failure in failures[:20]:
        print(failure)
    if failures:
        raise SystemExit(1)


if __name__ == "__main__":
    if "--write" in sys.argv:
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
