"""The settings of THSG, with the paper's values."""

from dataclasses import dataclass

from tophit.errors import UsageError
from tophit.methods.thsg.equations import Metric


@dataclass(frozen=True)
class GenerationSettings:
    """All that can be chosen; the recipe's section ``method`` has the same fields and says what they mean."""

    alpha: float = 0.2
    gamma: float = 0.8
    eta: float = 0.3
    beta: float = 0.5
    mu: float = 0.3
    phi: float = 0.5
    nu: float = 0.2
    metric: Metric = "sql2"
    normalize_d2: bool = True
    pretrain_epochs: int = 1
    second_stage: bool = True
    category: bool = True
    hard: bool = True
    buffer_steps: int = 0
    classifier_lr: float = 1e-3
    generator_lr: float = 1e-3
    discriminator_lr: float = 1e-4
    weight_decay: float = 4e-4
    generator_width: int = 128
    discriminator_width: int = 512

    def __post_init__(self) -> None:
        if 2 * self.eta + self.mu > 1 + 1e-9:
            raise UsageError(
                f"2 eta + mu must be at most 1, since Eq. 17 gives the rest to the reconstruction; eta is {self.eta}, "
                f"mu is {self.mu}."
            )

    @property
    def generates(self) -> bool:
        """Whether anything uses generated samples."""
        return self.hard or self.category
