"""DAML, deep adversarial metric learning: a generator makes hard negatives against which the metric learns."""

from typing import Annotated

import torch
from torch import nn

from tophit.methods.feature_generation import FeatureGenerationMethod, FeatureGenerator, squared_norm
from tophit.methods.method import Embed
from tophit.methods.stepper import Stepper
from tophit.methods.thsg.components import plain_numbers
from tophit.options import AtLeastZero, Count, Doc
from tophit.registry import register


def generator_loss(
    made: torch.Tensor,
    y: torch.Tensor,
    made_z: torch.Tensor,
    z: torch.Tensor,
    regularizer: float = 1.0,
    adversary: float = 50.0,
    margin: float = 1.0,
) -> dict[str, torch.Tensor]:
    """Return J_gen = J_hard + lambda_1 J_reg + lambda_2 J_adv and its parts, each (T,) (Duan et al., CVPR 2018).

        J_hard = |n~ - a|^2             the negative is hard: near the anchor, as a feature
        J_reg  = |n~ - n|^2             and still of its class: near the real negative
        J_adv  = [D(n~, a)^2 - D(p, a)^2 - margin]+   and fools the metric D, by which it should not be far

    ``made`` (T, C) are generated negatives, ``y`` (3, T, C) the features of anchors, positives and negatives;
    ``made_z`` (T, d) and ``z`` (3, T, d) are what the metric makes of them.
    """
    hard, reg = squared_norm(made - y[0]), squared_norm(made - y[2])
    adv = (squared_norm(made_z - z[0]) - squared_norm(z[1] - z[0]) - margin).clamp(min=0)
    return {"hard": hard, "reg": reg, "adv": adv, "LG": hard + regularizer * reg + adversary * adv}


@register("method", "daml")
class DAMLMethod(FeatureGenerationMethod):
    """DAML: learns from hard negatives that a generator makes. Needs balanced batches and a pair loss.

    Duan et al., "Deep adversarial metric learning", CVPR 2018. The generator takes the features of an anchor, a
    positive and a negative and makes a negative of them (``generator_loss``); the metric's loss is that of the anchor,
    the positive and the made negative. Each learns by its own loss: the generator first, then the embedder.

    What the paper leaves open, and how it is read here: triplets are random, one per image. The embedder takes what was
    made as data: its gradient does not run through the generator. The paper first trains the metric without a
    generator and then the generator alone; here, in the first ``pretrain_epochs`` epochs the metric learns from real
    triplets, while the generator already learns against it. The made features have no discriminator. The generator's
    rate is relative to the embedder's, as in THSG. Only the embedder is needed after training.
    """

    def __init__(
        self,
        features: Embed,
        head: Embed,
        loss: nn.Module,
        optimizer: torch.optim.Optimizer,
        classes: int,
        dim: int,
        channels: int,
        regularizer: Annotated[AtLeastZero, Doc("Weight of nearness to the real negative (lambda_1).")] = 1.0,
        adversary: Annotated[AtLeastZero, Doc("Weight of fooling the metric (lambda_2).")] = 50.0,
        margin: Annotated[AtLeastZero, Doc("Squared distance by which a made negative may be farther (alpha).")] = 1.0,
        weight: Annotated[AtLeastZero, Doc("Weight of the metric's loss of made triplets (lambda).")] = 1.0,
        pretrain_epochs: Annotated[int, Doc("Number of first epochs with real triplets only.", ge=0)] = 1,
        generator_width: Annotated[Count, Doc("Width of the generator's two hidden layers.")] = 512,
        generator_rate: Annotated[AtLeastZero, Doc("Rate of the generator, in multiples of the embedder's.")] = 100.0,
        weight_decay: Annotated[AtLeastZero, Doc("Weight decay of the generator.")] = 4e-4,
        device: torch.device | str = "cpu",
        stepper: Stepper | None = None,
    ) -> None:
        generator = FeatureGenerator(3 * channels, (generator_width, generator_width), channels)
        super().__init__(
            "daml",
            features,
            head,
            loss,
            optimizer,
            nn.ModuleDict({"g": generator}),
            {"g": generator_rate},
            {"g": "the loss of the generator"},
            weight_decay,
            pretrain_epochs,
            device,
            stepper,
        )
        self.regularizer, self.adversary, self.margin, self.weight = regularizer, adversary, margin, weight

    def learn(
        self, y: torch.Tensor, z: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor
    ) -> dict[str, float | str]:
        """Update the generator, then the embedder."""
        real, generate = y.detach()[triplets], self.networks["g"]
        made = generate(torch.cat(tuple(real), dim=-1))
        weights = (self.regularizer, self.adversary, self.margin)
        parts = generator_loss(made, real, self.head(made), z.detach()[triplets], *weights)
        log = {name: part.mean() for name, part in parts.items()}
        self._optimizers.learn("g", log["LG"])
        if self.epoch < self.pretrain_epochs:
            loss = self.metric_loss(z, labels, triplets)
        else:
            with torch.no_grad():
                made = generate(torch.cat(tuple(real), dim=-1))
            joined, kinds = torch.cat([z, self.head(made)]), torch.cat([labels, labels[triplets[2]]])
            count = torch.arange(triplets.shape[1], device=labels.device)
            fooled = torch.stack([triplets[0], triplets[1], len(z) + count])
            loss = self.weight * self.metric_loss(joined, kinds, fooled)
        self._optimizers.learn("f", loss)
        return plain_numbers({"loss": loss, "triplets": float(triplets.shape[1]), **log})
