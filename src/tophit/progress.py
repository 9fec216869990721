"""How long tasks show progress: nothing by default, bars with rate and time left on a terminal, lines in a log."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.text import Text

Progress = Callable[[Iterable[Any], int], Iterable[Any]]  # wraps an iterable of known length and shows its progress


class View:
    """Reports the progress of a run; this one is silent."""

    def note(self, message: str) -> None:
        """Show one sentence."""

    def track(self, description: str) -> Progress:
        """Return a wrapper that shows the progress of an iterable of known length."""
        return lambda items, total: items

    @contextmanager
    def steps(self, total: int, done: int) -> Iterator[None]:
        """Show the progress of training steps."""
        yield

    def step(self, loss: float, steps: int = 1) -> None:
        """Report that training steps were taken, and the last one's loss."""

    def time_left(self, step: int, total: int, loss: float, seconds: float | None) -> None:
        """Report how far training is, and the seconds to the end of the run, None if they are not known yet."""

    def evaluated(self, epoch: int, metric: str, value: float, recall: float, splits: int = 1) -> None:
        """Report an evaluation: a metric, the mean over class splits, and recall@1 of the first split."""


def in_words(seconds: float) -> str:
    """Return a duration as a person would say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class _Rate(bars.ProgressColumn):
    def render(self, task: bars.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each")


class _Memory(bars.ProgressColumn):
    def render(self, task: bars.Task) -> Text:
        return Text(f"{memory_in_use() / 2**30:.1f} GB")


def memory_in_use() -> int:
    """Return the bytes that PyTorch holds on the GPU if it uses one, else those of this process in main memory."""
    torch = sys.modules.get("torch")  # a progress bar is no reason to import it
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.memory_reserved()
    return resident_bytes()


def resident_bytes() -> int:
    """Return the bytes that this process holds in main memory."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the peak so far, in bytes on a Mac
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class TerminalView(View):
    """Shows bars on a terminal; elsewhere only sentences, so that logs stay readable, and one line a minute."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock = clock
        self._progress: bars.Progress | None = None
        self._last_line = clock()

    def note(self, message: str) -> None:
        """Print one sentence above any bar."""
        console = self._progress.console if self._progress else self.console
        console.print(message, highlight=False, markup=False)

    def track(self, description: str) -> Progress:
        """Return a wrapper that shows a bar with rate and time left."""

        def wrapped(items: Iterable[Any], total: int) -> Iterator[Any]:
            with self._bar() as progress:
                yield from progress.track(items, total=total, description=description)

        return wrapped

    @contextmanager
    def steps(self, total: int, done: int) -> Iterator[None]:
        """Show one bar for all training steps with the current loss, the last metric and the memory in use."""
        columns = (bars.TextColumn("loss {task.fields[loss]:.3f}"), bars.TextColumn("{task.fields[metric]}"), _Memory())
        left = bars.TextColumn("{task.fields[left]}")  # not rich's own: an evaluation takes longer than a step
        with self._bar(*columns, left=left) as progress:
            fields: dict[str, Any] = {"loss": float("nan"), "metric": "", "left": ""}
            self._task = progress.add_task("Training", total=total, completed=done, **fields)
            self._progress = progress
            try:
                yield
            finally:
                self._progress = None

    def step(self, loss: float, steps: int = 1) -> None:
        """Advance the bar."""
        if self._progress:
            self._progress.update(self._task, advance=steps, loss=loss)

    def time_left(self, step: int, total: int, loss: float, seconds: float | None) -> None:
        """Show the time left beside the bar; where there is no terminal, print a line once a minute."""
        words = "" if seconds is None else f"{in_words(seconds)} left"
        if self.console.is_terminal:
            if self._progress:
                self._progress.update(self._task, left=words)
        elif self.clock() - self._last_line >= 60:
            self._last_line = self.clock()
            self.note(f"step {step:,} of {total:,}, loss {loss:.3f}" + (f", about {words}" if words else ""))

    def evaluated(self, epoch: int, metric: str, value: float, recall: float, splits: int = 1) -> None:
        """Print an evaluation's line."""
        mean, own = (f" (mean of {splits} splits)", " (first split)") if splits > 1 else ("", "")
        self.note(f"epoch {epoch}: validation {metric} {value:.4f}{mean}, recall@1 {recall:.4f}{own}")
        if self._progress:
            self._progress.update(self._task, metric=f"{metric} {value:.4f}")

    def _bar(self, *columns: bars.ProgressColumn, left: bars.ProgressColumn | None = None) -> bars.Progress:
        return bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            _Rate(),
            left or bars.TimeRemainingColumn(),
            *columns,
            console=self.console,
            transient=not self.console.is_terminal,
            disable=not self.console.is_terminal,
        )
