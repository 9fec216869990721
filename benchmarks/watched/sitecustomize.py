"""Reports which functions of a tree of code a Python process calls; Python imports this file when it starts.

See :mod:`benchmarks.way`, which puts this folder on the path of the processes that it watches and listens to them. A
call is reported once per phase; the one byte of a shared file is the phase. Reports go through a socket, because a
process may have given up its right to write files.
"""

import mmap
import os
import socket
import sys
import threading
from types import CodeType, FrameType
from typing import Any

_OPTIMIZED = 1  # inspect.CO_OPTIMIZED: the code of a function, not of a module's or a class's body


def watch(tree: str, place: str, phase_file: str) -> None:
    """Send a line for the first call of every function defined below a folder: phase, file, line and name."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.connect(place)
    with open(phase_file, "rb") as file:
        phase = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
    told: set[tuple[int, CodeType]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(tree):
            return
        call = (phase[0], code)
        if call in told or not _is_named_function(code) or _is_importing(frame, tree):
            return
        told.add(call)
        sender.send(f"{call[0]}\t{code.co_filename}\t{code.co_firstlineno}\t{code.co_qualname}".encode())

    threading.setprofile(note)
    sys.setprofile(note)


def _is_named_function(code: CodeType) -> bool:
    return bool(code.co_flags & _OPTIMIZED) and not code.co_name.startswith("<")


def _is_importing(frame: FrameType | None, tree: str) -> bool:
    """Return whether a call is part of a module's import, such as a decorator's."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(tree):
            return frame.f_globals.get("__name__") != "__main__"
        frame = frame.f_back
    return False


if "TOPHIT_WATCHED_TREE" in os.environ:
    watch(*(os.environ[f"TOPHIT_WATCHED_{name}"] for name in ("TREE", "SOCKET", "PHASE")))
