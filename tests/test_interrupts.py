"""Ctrl-C that an import swallows still stops the command."""

import subprocess
import sys

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
