"""Whether a generator still makes different samples of a class, or always the same one."""

from typing import Any

import torch

# A class counts as collapsed if its generated samples spread less than this share of what its real ones do.
COLLAPSED = 0.1


@torch.no_grad()
def class_spread_ratio(
    real: torch.Tensor, real_labels: torch.Tensor, made: torch.Tensor, made_labels: torch.Tensor, classes: int
) -> torch.Tensor:
    """Return the spread of generated samples (M, d) over that of real ones (N, d), of each class with two of both.

    The spread of a class is the mean squared distance to its mean. Classes whose real samples coincide are left out.
    """
    spread, count = _class_spread(real, real_labels, classes)
    made_spread, made_count = _class_spread(made, made_labels, classes)
    usable = (count >= 2) & (made_count >= 2) & (spread > torch.finfo(spread.dtype).eps)
    return made_spread[usable] / spread[usable]


def _class_spread(x: torch.Tensor, labels: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the spread and the number of samples of each class, both (classes,)."""
    count = torch.bincount(labels, minlength=classes)
    at_least_one = count.clamp(min=1)[:, None]
    mean = x.new_zeros(classes, x.shape[1]).index_add_(0, labels, x) / at_least_one
    squared = (x - mean[labels]).square().sum(dim=1)
    return x.new_zeros(classes).index_add_(0, labels, squared) / at_least_one[:, 0], count


class CollapseWatch:
    """Warns once when, over some steps, most classes of a batch are collapsed."""

    def __init__(self, steps: int = 20, share: float = 0.5) -> None:
        self.steps = steps
        self.share = share
        self.recent: list[float] = []
        self.warned = False

    def see(self, collapsed: float) -> str | None:
        """Take in a step's share of collapsed classes; return a warning the first time there is reason for one."""
        self.recent = [*self.recent, collapsed][-self.steps :]
        mean = sum(self.recent) / len(self.recent)
        if self.warned or len(self.recent) < self.steps or mean < self.share:
            return None
        self.warned = True
        return (
            f"Generation has collapsed: over the last {self.steps} steps, in {100 * mean:.0f}% of the classes the "
            f"generated samples spread less than {100 * COLLAPSED:.0f}% as far as the real ones, so they teach little. "
            "Lower method.generator_lr, raise method.discriminator_lr, or train with method.name=plain."
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to go on."""
        return {"recent": self.recent, "warned": self.warned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.recent, self.warned = list(state["recent"]), bool(state["warned"])
