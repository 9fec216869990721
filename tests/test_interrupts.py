"""Ctrl-C that an import swallows still stops the command; a stop in the final test says how to continue."""

import subprocess
import sys
from pathlib import Path

SWALLOWS = """
import os, signal
from tophit import interrupts
from tophit.cli import shell

def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass  # as a compiled module may do while it is imported
    {then}

shell.app = command
shell.main()
"""


def run(then: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SWALLOWS.format(then=then)], capture_output=True, text=True)


def test_what_a_half_imported_module_leads_to_is_not_shown() -> None:
    done = run("raise AttributeError('half imported')")
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)
    assert "Stopped" in done.stderr


def test_a_swallowed_interrupt_comes_back_at_the_next_check() -> None:
    done = run("interrupts.check()")
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr


IN_THE_FINAL_TEST = """
import os, signal, sys
from tophit.cli import shell
from tophit.training import loop

def stopped(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()  # a process that was not stopped would wait here for the next signal

loop.load = stopped  # the best embedder is loaded for the final test
shell.main()
"""


def test_a_stop_during_the_final_test_says_how_to_continue(pictures: Path, tmp_path: Path) -> None:
    small = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=1"]
    words = ["train", "head", "--data", str(pictures), "--run", str(tmp_path / "run")]
    words += [word for setting in small for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_FINAL_TEST, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 130, done.stderr
    assert f"Continue with: tophit train --resume {tmp_path / 'run'}" in done.stderr
    assert "Traceback" not in done.stderr
