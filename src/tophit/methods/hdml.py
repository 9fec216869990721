"""HDML, hardness-aware deep metric learning: negatives are moved towards the anchor as far as the metric can bear."""

from typing import Annotated, Any

import torch
from torch import nn
from torch.nn import functional

from tophit.losses.pairwise.pair_loss import distance
from tophit.methods.feature_generation import FeatureGenerationMethod, FeatureGenerator, squared_norm
from tophit.methods.method import Embed
from tophit.methods.stepper import Stepper
from tophit.methods.thsg.components import EpochMean, plain_numbers
from tophit.methods.thsg.equations import balance_weights
from tophit.options import AtLeastZero, Count, Doc, Positive
from tophit.registry import register


def hardness(loss_avg: float, alpha: float) -> float:
    """Return lambda = exp(-alpha / J_avg): near 1 while the average metric loss is high, 0 once it is low."""
    return float(balance_weights(loss_avg, alpha)[0])


def harder_negatives(z: torch.Tensor, factor: float) -> torch.Tensor:
    """Return the negatives (T, d) of triplets z (3, T, d), moved towards their anchors (Zheng et al., 2019).

    A negative farther from the anchor than the positive, d(a, n) > d+ = d(a, p), comes to lie on the line between them
    at the distance ``factor`` d(a, n) + (1 - ``factor``) d+; a nearer one is hard enough and stays.
    """
    a, p, n = z
    nearest, far = distance(squared_norm(a - p))[:, None], distance(squared_norm(a - n))[:, None]
    moved = a + (factor * far + (1 - factor) * nearest) * (n - a) / torch.where(far > 0, far, 1)
    return torch.where(far > nearest, moved, n)


def generator_losses(
    y: torch.Tensor, rebuilt: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, soft_weight: float
) -> dict[str, torch.Tensor]:
    """Return J_gen = J_recon + weight J_soft and its parts, scalars (Zheng et al., CVPR 2019).

        J_recon = sum |y - y'|^2      features rebuilt from unchanged embeddings are those they came from
        J_soft  = mean softmax loss   what is made of changed embeddings keeps its label, says a classifier

    ``y`` and ``rebuilt`` (3, T, C) are the features of triplets; ``logits`` (3, T, K) are those of the made ones, by a
    classifier of real features.
    """
    recon = squared_norm(y - rebuilt).sum()
    soft = functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
    return {"recon": recon, "soft": soft, "LG": recon + soft_weight * soft}


@register("method", "hdml")
class HDMLMethod(FeatureGenerationMethod):
    """HDML: learns from triplets whose hardness follows the metric's own loss. Needs balanced batches and a pair loss.

    Zheng et al., "Hardness-aware deep metric learning", CVPR 2019. Negatives are moved towards their anchors in the
    space of embeddings (``harder_negatives``), the farther the lower the average loss of the last epoch was
    (``hardness``). A generator maps the triplet back to features that keep label and hardness (``generator_losses``),
    and the head embeds them again. The metric learns from both, the more from the made ones the better the generator:

        exp(-beta / J_gen) J_m + (1 - exp(-beta / J_gen)) J_syn

    What is open, and how it is read here: triplets are random, one per image; d+ is the distance of the triplet's own
    positive. J_recon is a sum over the batch and J_soft a mean with weight 1e4, so that the paper's beta of 1e4 fits
    (features of another scale need another beta: the log's ``w_org`` should begin near 1 and fall). The embedder
    takes what was made as data: its gradient does not run through the generator. A classifier of real features learns
    beside. Rates are relative to the embedder's, as in THSG. Only the embedder is needed after training.
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
        alpha: Annotated[
            Positive, Doc("How soon negatives get hard; the paper: 7 with triplet, 90 with n-pair.")
        ] = 7.0,
        beta: Annotated[Positive, Doc("How soon made triplets count, in units of the generator's loss.")] = 1e4,
        soft_weight: Annotated[AtLeastZero, Doc("Weight of keeping the label in the generator's loss.")] = 1e4,
        pretrain_epochs: Annotated[int, Doc("Number of first epochs with real triplets only.", ge=0)] = 1,
        generator_width: Annotated[Count, Doc("Width of the generator's hidden layer.")] = 512,
        generator_rate: Annotated[AtLeastZero, Doc("Rate of the generator, in multiples of the embedder's.")] = 100.0,
        classifier_rate: Annotated[AtLeastZero, Doc("Rate of the classifier, in multiples of the embedder's.")] = 100.0,
        weight_decay: Annotated[AtLeastZero, Doc("Weight decay of generator and classifier.")] = 4e-4,
        device: torch.device | str = "cpu",
        stepper: Stepper | None = None,
    ) -> None:
        generator, classifier = FeatureGenerator(dim, (generator_width,), channels), nn.Linear(channels, classes)
        super().__init__(
            "hdml",
            features,
            head,
            loss,
            optimizer,
            nn.ModuleDict({"g": generator, "c": classifier}),
            {"g": generator_rate, "c": classifier_rate},
            {"g": "the loss of the generator", "c": "the loss of the classifier"},
            weight_decay,
            pretrain_epochs,
            device,
            stepper,
        )
        self.alpha, self.beta, self.soft_weight = alpha, beta, soft_weight
        self.average = EpochMean()

    def begin_epoch(self, epoch: int) -> None:
        """Set the epoch (from 0) of the next steps; the hardness follows the previous epoch's loss."""
        if epoch != self.epoch:
            self.average.end_epoch()
        super().begin_epoch(epoch)

    def learn(
        self, y: torch.Tensor, z: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor
    ) -> dict[str, float | str]:
        """Update the classifier, then the generator, then the embedder."""
        kinds, real, codes = labels[triplets], y.detach()[triplets], z.detach()[triplets]
        generate, classify = self.networks["g"], self.networks["c"]
        org = self.metric_loss(z, labels, triplets)
        self.average.add(org.detach()[None])
        factor = hardness(self.average.value(), self.alpha)
        log: dict[str, Any] = {"class": functional.cross_entropy(classify(y.detach()), labels)}
        self._optimizers.learn("c", log["class"])

        changed = torch.stack([codes[0], codes[1], harder_negatives(codes, factor)])
        made = generate(changed)
        log |= generator_losses(real, generate(codes), classify(made), kinds, self.soft_weight)
        self._optimizers.learn("g", log["LG"])

        w_org, w_syn = (float(weight) for weight in balance_weights(log["LG"].detach().double(), self.beta))
        loss = org
        if self.epoch >= self.pretrain_epochs:
            with torch.no_grad():
                made = generate(changed)
            rows = torch.arange(triplets.numel(), device=labels.device).reshape(triplets.shape)
            syn = self.metric_loss(self.head(made.flatten(0, 1)), kinds.flatten(), rows)
            loss = w_org * org + w_syn * syn
            log |= {"syn": syn, "w_org": w_org, "w_syn": w_syn}
        self._optimizers.learn("f", loss)
        log |= {"loss": loss, "org": org, "hardness": factor, "triplets": float(triplets.shape[1])}
        return plain_numbers(log)

    def state_dict(self) -> dict[str, Any]:
        """Return all state except the embedder's weights."""
        return {**super().state_dict(), "average": self.average.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self.average.load_state_dict(state["average"])
