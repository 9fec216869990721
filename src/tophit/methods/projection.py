"""The projection method (PROFS): alternating projections onto the constraints of one representative per class."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Any, Self

import torch
from torch import nn
from torch.nn import functional

from tophit.batches.representatives import RepresentativeBatchSampler
from tophit.methods.method import Embed, Method, RunParts, TrainingBatch, logged_tuples, tuples_used
from tophit.methods.stepper import Stepper
from tophit.mining import mine
from tophit.options import AtLeastZero, Doc, Positive
from tophit.registry import register

_SAMPLER_OPTIONS = ("rho", "steps", "hncm")


class Proximal:
    """The term lambda / 2 ||theta_prev - theta||^2 of weights, as its gradient lambda (theta - theta_prev)."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight: float) -> None:
        self.parameters = list(parameters)
        self.weight = weight
        self.held: list[torch.Tensor] = []

    @torch.no_grad()
    def hold(self) -> None:
        """Copy the current weights: theta_prev."""
        self.held = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add the term's gradient to every weight that has a gradient; frozen weights have none."""
        moving = [(p, p.grad, held) for p, held in zip(self.parameters, self.held, strict=True) if p.grad is not None]
        if moving:
            weights, gradients, held = (list(part) for part in zip(*moving, strict=True))
            # All in one call: a network has hundreds of weights, most of them small.
            moved = torch._foreach_sub(weights, held)  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_add_(gradients, moved, alpha=self.weight)  # pyright: ignore[reportPrivateImportUsage]


def exemplars(
    loss: nn.Module, embeddings: torch.Tensor, labels: torch.Tensor, representative: torch.Tensor
) -> dict[str, Any]:
    """Return the arguments that restrict a loss to a projection's exemplars (PROFS paper, Sec. 5.3).

    The loss's ``restriction`` says how:

    - ``triplets``: each representative with all its positives and the same number of nearest negatives.
    - ``pairs``: the pairs that contain a representative.
    - ``positives``: representatives are the positives, the other images of their classes the anchors.
    - None: the loss sees the whole batch; it gets PROFS's batches and proximal term without any restriction.

    Shapes: embeddings (N, d), labels (N,), representative (N,) bool.
    """
    restriction = getattr(loss, "restriction", None)
    ends = representative.nonzero()[:, 0]
    if restriction == "triplets":
        normalize = getattr(loss, "normalize", True)
        return {"triplets": mine(embeddings, labels, "balanced-hard", anchors=ends, normalize=normalize)}
    if restriction == "pairs":
        everyone = torch.arange(len(labels), device=labels.device)
        pairs = torch.cartesian_prod(ends, everyone)
        i, j = pairs[pairs[:, 0] != pairs[:, 1]].T
        return {"pairs": (i, j)}
    if restriction == "positives":
        pairs = ((labels[:, None] == labels[None, ends]) & ~representative[:, None]).nonzero()
        return {"pairs": (pairs[:, 0], ends[pairs[:, 1]])}
    return {}


@register("method", "projection", called=("profs",), also="tophit.batches.representatives:RepresentativeBatchSampler")
class ProjectionMethod(Method):
    """PROFS: one representative per class for some steps, near the previous weights. Needs balanced batches.

    Can, Gurbuz and Alatan, "Deep metric learning with alternating projections onto feasible sets".

    Takes the batches of a ``RepresentativeBatchSampler``, which keeps one representative per class for M steps. In each
    step the loss sees only exemplars with a representative, and the weights are held near those at the start of the
    projection (Eq. 4.7 and Algorithm 1, with lambda / 2 before the proximal term):

        theta_k = argmin_theta  lambda / 2 ||theta_{k-1} - theta||^2 + L(theta; exemplars of the k-th representatives)

    Any loss works: a pair loss is restricted as ``exemplars`` describes, any other sees the whole batch. ``proximal``
    is lambda; its gradient is added before the optimizer's step, to all weights except the loss's own parameters.
    ``proximal_in_first_cycle=False`` leaves the first projection free. With a sampler that mines hard negative classes,
    the embeddings of representatives are stored as they pass. ``embed`` and ``stepper`` are those of ``PlainMethod``.

    At the last step of a projection, ``step`` also returns the shares of violated constraints (Eq. 4.2) among the pairs
    of its batches, measured on unit vectors: ``violated_positive``, images farther than ``near`` from the
    representative of their class, and ``violated_negative``, images nearer than ``far`` to that of another class. And
    how evenly it used the classes: ``class_use_min`` and ``class_use_max``, the batches that the least and the most
    used class was in, and ``classes_unused``, how many were in none.
    """

    takes_miner = False

    def __init__(
        self,
        embed: Embed,
        loss: nn.Module,
        optimizer: torch.optim.Optimizer,
        sampler: RepresentativeBatchSampler,
        proximal: Annotated[
            AtLeastZero, Doc("Lambda: how strongly weights are held near where the projection began.")
        ] = 1e-3,
        proximal_in_first_cycle: Annotated[
            bool, Doc("Hold the weights in the first projection too, although it begins with untrained ones.")
        ] = True,
        near: Annotated[
            Positive,
            Doc("For the log: images farther than this from their class's representative count as violations."),
        ] = 0.5,
        far: Annotated[
            Positive, Doc("For the log: images nearer than this to another class's representative count as violations.")
        ] = 1.2,
        stepper: Stepper | None = None,
    ) -> None:
        self.embed = embed
        self.loss = loss
        self.optimizer = optimizer
        self.sampler = sampler
        own = {id(parameter) for parameter in loss.parameters()}
        weights = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in own]
        self.proximal = Proximal(weights, proximal)
        self.proximal_in_first_cycle = proximal_in_first_cycle
        self.near, self.far = near, far
        self.stepper = stepper or Stepper()
        self.projection = -1
        # Counts over this projection's batches: positive pairs, violated ones, negative pairs, violated ones.
        self._pairs = torch.zeros(4, dtype=torch.int64)

    @classmethod
    def for_run(cls, parts: RunParts, **options: Any) -> Self:
        """Make the method of a run; the sampler's options are handled by ``make_sampler``."""
        assert isinstance(parts.sampler, RepresentativeBatchSampler)
        own = {name: value for name, value in options.items() if name not in _SAMPLER_OPTIONS}
        optimizer = parts.make_optimizer(parts.loss)
        return cls(parts.embed, parts.loss, optimizer, parts.sampler, stepper=parts.stepper, **own)

    @classmethod
    def make_sampler(
        cls, labels: Sequence[Hashable], classes: int, per_class: int, seed: int, **options: Any
    ) -> RepresentativeBatchSampler:
        """Return batches around representatives."""
        own = {name: value for name, value in options.items() if name in _SAMPLER_OPTIONS}
        return RepresentativeBatchSampler(labels, classes, per_class, seed, **own)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The one optimizer."""
        return [self.optimizer]

    def step(self, batch: TrainingBatch) -> dict[str, float]:
        """Learn from the batch that the sampler drew last and return what to log."""
        if self.sampler.projection != self.projection:
            self._begin_projection()
        rows = batch.rows.cpu().numpy()
        is_representative = self.sampler.is_representative(rows)
        representative = torch.from_numpy(is_representative).to(batch.labels.device)
        self.optimizer.zero_grad(set_to_none=True)
        embeddings = self.stepper.embed(self.embed, batch)
        seen = embeddings.detach()
        loss = self.loss(embeddings, batch.labels, **exemplars(self.loss, seen, batch.labels, representative))
        self.stepper.backward(loss, self.optimizer)
        if self.proximal.weight and (self.projection or self.proximal_in_first_cycle):
            self.proximal.add_gradient()
        self.stepper.step(self.optimizer)
        self._remember(seen.float(), batch.labels, representative, rows[is_representative])
        return {
            "loss": loss.item(),
            **logged_tuples(tuples_used(self.loss)),
            "projection": self.projection,
            **self._summary(),
        }

    def _begin_projection(self) -> None:
        self.projection = self.sampler.projection
        self._pairs = torch.zeros_like(self._pairs)
        if self.proximal.weight:
            self.proximal.hold()

    def _remember(
        self, embeddings: torch.Tensor, labels: torch.Tensor, representative: torch.Tensor, rows: Any
    ) -> None:
        """Store the representatives' embeddings for class mining, and count the batch's violated constraints."""
        unit = functional.normalize(embeddings, dim=1)
        mined = unit if getattr(self.loss, "normalize", True) else embeddings
        self.sampler.update(rows, mined[representative].cpu().numpy())
        cosines = unit[representative] @ unit.T  # d^2 = 2 - 2 cos
        same = labels[representative][:, None] == labels[None, :]
        count = same.sum()
        too_far = (same & (cosines < 1 - self.near**2 / 2)).sum()
        too_near = (~same & (cosines > 1 - self.far**2 / 2)).sum()
        # A representative forms no pair with itself, and is never too far from itself.
        self._pairs = self._pairs + torch.stack([count - len(same), too_far, same.numel() - count, too_near]).cpu()

    def _summary(self) -> dict[str, float]:
        """Return what is logged once for a projection, at its last step."""
        if self.sampler.step < self.sampler.steps_per_projection:
            return {}
        return {**self._violations(), **self._class_use()}

    def _class_use(self) -> dict[str, float]:
        use = self.sampler.class_use
        if use is None:  # resumed inside a projection, from a checkpoint of before uses were counted
            return {}
        return {
            "class_use_min": int(use.min()),
            "class_use_max": int(use.max()),
            "classes_unused": int((use == 0).sum()),
        }

    def _violations(self) -> dict[str, float]:
        positives, far_positives, negatives, near_negatives = self._pairs.tolist()
        return {
            "violated_positive": far_positives / max(1, positives),
            "violated_negative": near_negatives / max(1, negatives),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state of loss, optimizer, sampler and projection; the embedder's is saved separately."""
        return {
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state_dict(),
            "projection": self.projection,
            "held": [held.clone() for held in self.proximal.held],
            "pairs": self._pairs.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sampler.load_state_dict(state["sampler"])
        self.projection = state["projection"]
        devices = [parameter.device for parameter in self.proximal.parameters]
        self.proximal.held = [held.to(device) for held, device in zip(state["held"], devices, strict=False)]
        self._pairs = state["pairs"]
