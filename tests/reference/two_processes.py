"""A script run as two processes that meet through a file in a folder, and what each saved there."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

_PATIENCE = 150.0  # seconds


def results_of_two_processes(script: str, folder: Path) -> list[Any]:
    """Run ``script FOLDER RANK`` twice side by side and return both ``RANK.pt``; a failure of either is an error.

    Gloo's meeting was once seen to hang without an end, in some hundred runs. So a pair that has not ended is killed
    and started a second time; a script that always hangs still fails.
    """
    for attempt in ("first", "second"):
        place = folder / attempt
        place.mkdir()
        codes = _exit_codes(script, place)
        if codes is not None:
            assert codes == [0, 0]
            return [torch.load(place / f"{rank}.pt") for rank in (0, 1)]
    raise AssertionError(f"{script} did not end in {_PATIENCE:.0f} seconds, twice")


def _exit_codes(script: str, folder: Path) -> list[int] | None:
    """Return how both processes ended, or None if they were killed after a while."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.getcwd()}
    pair = [subprocess.Popen([sys.executable, script, str(folder), str(rank)], env=environment) for rank in (0, 1)]
    try:
        return [process.wait(_PATIENCE) for process in pair]
    except subprocess.TimeoutExpired:
        return None
    finally:
        for process in pair:
            process.kill()
            process.wait()
