"""The way of an image through the code: which functions of a tree are called, counted while real commands run.

Both are commands of the measured tree in separate processes: ``tophit train`` on a folder of
images, and ``tophit serve``, to which a picture is uploaded. Python's profiling hook (:mod:`benchmarks.watched`) sees
all their threads and all processes that they start.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from PIL import Image

_HOOK = Path(__file__).parent / "watched"
_PATIENCE = 120.0  # seconds until a server must answer
_REST = 1.0  # seconds for a server to finish its work after an answer


@dataclass(frozen=True)
class Function:
    """A function, identified by where it is defined, and the phase in which it was called."""

    phase: int
    file: str
    line: int
    name: str


class Watch:
    """Listens to watched processes; used in a with statement. A process with ``environment`` is watched."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.calls: set[Function] = set()
        self._phase = folder / "phase"
        self._phase.write_bytes(b"\0")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        place = str(folder / "calls")
        self._socket.bind(place)
        self.environment = {
            **_environment(tree, folder),
            "PYTHONPATH": os.pathsep.join(map(str, (_HOOK, tree.parent))),
            "TOPHIT_WATCHED_TREE": f"{tree}{os.sep}",
            "TOPHIT_WATCHED_SOCKET": place,
            "TOPHIT_WATCHED_PHASE": str(self._phase),
        }
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def begin_phase(self, number: int) -> None:
        """Start a new phase: functions called from now on are reported again."""
        with self._phase.open("r+b") as file:  # in place: the processes see the same byte
            file.write(bytes([number]))

    def _listen(self) -> None:
        while line := self._socket.recv(4096).decode():
            phase, file, number, name = line.split("\t")
            self.calls.add(Function(int(phase), file, int(number), name))


def functions_of_training(tree: Path) -> set[Function]:
    """Return the functions between a folder of images and a trained head: ``tophit train head --data FOLDER``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = _draw_images(folder / "images")
        with Watch(tree, folder) as watch:
            _tophit(watch.environment, "train", "head", "--data", images, "--run", folder / "run")
        return watch.calls


def functions_of_searching(tree: Path) -> set[Function]:
    """Return the functions between an uploaded picture and its results: ``POST /search``, not the server's start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = _draw_images(folder / "images")
        _tophit(_environment(tree, folder), "index", images, "--run", "small", "--out", folder / "index")
        picture = next(images.rglob("*.png")).read_bytes()
        with Watch(tree, folder) as watch, _served(watch.environment, folder / "index") as address:
            time.sleep(_REST)
            watch.begin_phase(1)
            _upload(f"{address}/search", picture)
            time.sleep(_REST)
            watch.begin_phase(2)
        return {call for call in watch.calls if call.phase == 1}


def _environment(tree: Path, folder: Path) -> dict[str, str]:
    own = {"TOPHIT_CACHE": str(folder / "cache"), "TOPHIT_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, "PYTHONPATH": str(tree.parent), **own}


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-P", "-m", "tophit.cli", *map(str, arguments)]


def _tophit(environment: Mapping[str, str], *arguments: object) -> None:
    done = subprocess.run(_command(*arguments), env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"tophit {arguments[0]} failed:\n{done.stdout}\n{done.stderr}")


def _draw_images(folder: Path) -> Path:
    """Write 8 class folders of 6 pictures: noise around the class's colour."""
    random = np.random.default_rng(0)
    for kind in range(8):
        (folder / f"class {kind}").mkdir(parents=True)
        colour = random.integers(50, 200, 3)
        for number in range(6):
            pixels = colour + random.integers(-50, 50, (48, 48, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"class {kind}" / f"{number}.png")
    return folder


@contextmanager
def _served(environment: Mapping[str, str], index: Path) -> Iterator[str]:
    """Serve an index from the command line, and yield the address once it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(_command("serve", index, "--port", port), env=environment, stdout=subprocess.DEVNULL)
    try:
        _wait_for(f"{address}/ready", process)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE)


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise SystemExit(f"{address} did not answer.")


def _upload(address: str, picture: bytes) -> None:
    """Post a picture as a browser's form does; the answer must hold results."""
    border = "a-border-between-parts"
    part = f'--{border}\r\nContent-Disposition: form-data; name="files"; filename="query.png"\r\n'
    body = f"{part}Content-Type: image/png\r\n\r\n".encode() + picture + f"\r\n--{border}--\r\n".encode()
    request = urllib.request.Request(address, body, {"Content-Type": f"multipart/form-data; boundary={border}"})
    with urllib.request.urlopen(request) as answer:
        if b'"score"' not in answer.read():
            raise SystemExit("The search found nothing.")
