"""The time left counts warm-up, steps, evaluations and the work at the end."""

from io import StringIO

import pytest
from rich.console import Console

from tophit.progress import TerminalView
from tophit.training.time_left import TimeLeft


def test_nothing_is_known_before_anything_was_timed() -> None:
    assert TimeLeft(epochs=4, steps=10).left(0) is None


def test_steps_and_evaluations_are_counted_apart() -> None:
    time = TimeLeft(epochs=4, steps=10, every=2, final=1.5)
    time.took("step", 2.0)
    time.took("evaluation", 30.0)
    assert time.left(10) == pytest.approx(30 * 2 + (2 + 1.5) * 30)
    assert time.left(20) == pytest.approx(20 * 2 + (1 + 1.5) * 30)
    assert time.left(40) == pytest.approx(1.5 * 30)


def test_warm_up_is_cheaper_than_what_comes_after_it() -> None:
    time = TimeLeft(epochs=3, steps=10, warmup_epochs=1)
    assert [time.kind(epoch) for epoch in range(3)] == ["warm-up", "step", "step"]
    time.took("warm-up", 1.0)
    assert time.left(5) == pytest.approx(5 * 1 + 20 * 3)  # other steps are not timed yet: three times as long
    time.took("step", 5.0)
    assert time.left(10) == pytest.approx(20 * 5)


def test_a_log_file_gets_one_line_a_minute() -> None:
    now = 0.0
    out = StringIO()
    view = TerminalView(Console(file=out, width=200), clock=lambda: now)
    for second in range(0, 200, 10):
        now = float(second)
        view.time_left(second, 1000, 0.5, 7200.0)
    lines = out.getvalue().splitlines()
    assert lines == [f"step {at} of 1,000, loss 0.500, about 2.0 h left" for at in (60, 120, 180)]


def test_a_terminal_gets_no_lines() -> None:
    out = StringIO()
    view = TerminalView(Console(file=out, width=200, force_terminal=True), clock=iter(range(0, 10_000, 100)).__next__)
    view.time_left(5, 10, 0.5, None)
    assert out.getvalue() == ""
