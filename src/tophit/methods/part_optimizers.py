"""The optimizers of methods that train several networks against each other, each stepped by its own loss."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from tophit.errors import NonFinite
from tophit.methods.stepper import Stepper


class PartOptimizers(dict[str, torch.optim.Optimizer]):
    """Optimizers by the name of what they train. ``meanings`` says what each one's loss is, for errors."""

    def __init__(self, method: str, stepper: Stepper, meanings: Mapping[str, str]) -> None:
        super().__init__()
        self.method, self.stepper, self.meanings = method, stepper, meanings

    def add_adam(self, name: str, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        """Add Adam with weight decay in the gradient; fused, because these networks are small."""
        self[name] = torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=True)

    def learn(self, name: str, loss: torch.Tensor) -> None:
        """Take one step of one optimizer: only its own parameters get a gradient."""
        optimizer = self[name]
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.stepper.backward(loss, optimizer)
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        judged = loss.detach() if self.stepper.scaler else loss.detach() + norm  # a scaler skips such steps itself
        if not judged.isfinite():
            what = self.meanings[name] if not loss.detach().isfinite() else f"the gradient of {self.meanings[name]}"
            raise NonFinite(f"In the {self.method} method {what} became infinite or not a number.")
        self.stepper.step(optimizer)
        optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all of them."""
        return {name: optimizer.state_dict() for name, optimizer in self.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        for name, optimizer in self.items():
            optimizer.load_state_dict(state[name])
