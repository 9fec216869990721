"""How long a run still takes: steps of warm-up, other steps and evaluations are timed apart and counted."""

from dataclasses import dataclass, field

_MEMORY = 0.95  # of the mean of earlier steps that is kept at each step
_WITHOUT_BACKWARD = 3.0  # a step of the network takes about as many times a step of warm-up, which only passes forward


@dataclass
class TimeLeft:
    """Estimates the seconds to the end of a run from those of what was done so far.

    ``final`` is the work after the last epoch, in evaluations: choosing what is kept, and the test.
    """

    epochs: int
    steps: int  # per epoch
    warmup_epochs: int = 0
    every: int = 1  # epochs between evaluations
    final: float = 0.0
    _seconds: dict[str, float] = field(default_factory=dict)

    def took(self, kind: str, seconds: float) -> None:
        """Report the seconds of one thing: ``warm-up`` (a step of it), ``step`` or ``evaluation``."""
        before = self._seconds.get(kind)
        self._seconds[kind] = seconds if before is None else _MEMORY * before + (1 - _MEMORY) * seconds

    def kind(self, epoch: int) -> str:
        """Return the kind of the steps of an epoch, from 0."""
        return "warm-up" if epoch < self.warmup_epochs else "step"

    def left(self, step: int) -> float | None:
        """Return the seconds that are left after a number of steps, None if nothing was timed yet."""
        if not self._seconds:
            return None
        warm_steps = self.steps * min(self.warmup_epochs, self.epochs)
        warm = max(0, warm_steps - step)
        usual = self.epochs * self.steps - step - warm
        warm_seconds = self._seconds.get("warm-up", 0.0)
        step_seconds = self._seconds.get("step", _WITHOUT_BACKWARD * warm_seconds)
        done = step // self.steps // self.every
        evaluations = -(-self.epochs // self.every) - done + self.final
        return warm * warm_seconds + usual * step_seconds + evaluations * self._seconds.get("evaluation", 0.0)
