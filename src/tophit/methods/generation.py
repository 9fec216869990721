"""The generation method, THSG: the embedder learns from real triplets and from hard ones made by two generators."""

import math
from typing import Any, Self

import torch
from torch import nn

from tophit.methods.method import Embed, Method, Miner, RunParts, TrainingBatch, logged_tuples, tuples_used
from tophit.methods.part_optimizers import PartOptimizers
from tophit.methods.stepper import Stepper
from tophit.methods.thsg.components import (
    COLLAPSED,
    CollapseWatch,
    EpochMean,
    GenerationNetworks,
    SampleBuffer,
    class_spread_ratio,
    loss_of_triplets,
    plain_numbers,
    random_triplets,
)
from tophit.methods.thsg.equations import (
    balance_weights,
    discriminator1_loss,
    discriminator2_loss,
    embedding_loss,
    generator1_loss,
    generator2_loss,
    pair_distance,
    plm,
    reverse_margin,
    sample_losses,
)
from tophit.methods.thsg.settings import GenerationSettings
from tophit.mining import uniform
from tophit.registry import register

_PARTS = {
    "d1": "the loss of the first discriminator (Eq. 16)",
    "g1": "the loss of the first generator (Eq. 12)",
    "d2": "the loss of the second discriminator (Eq. 23)",
    "g2": "the loss of the second generator (Eq. 17)",
    "f": "the loss of the embedder (Eq. 5)",
}


@register("method", "generation", called=("thsg",), also="tophit.methods.thsg.settings:GenerationSettings")
class GenerationMethod(Method):
    """THSG: learns from real triplets and hard generated ones. Needs balanced batches and a pair loss.

    Zhu et al., arXiv 2112.02259: Algorithm 1, one batch per step, each network with its own optimizer.

    ``embed`` maps a batch's inputs to unit vectors (N, ``dim``); ``loss`` applies to the original triplets, and
    to the generated ones unless ``hard_loss`` is given. ``optimizer`` holds the embedder's parameters and those of the
    losses; the classifier's are added to it. ``miner`` changes only the triplets of the original term; without one,
    this term uses the random triplets that generation starts from.

    In the first ``pretrain_epochs`` epochs the embedder learns only from the original triplets and the category loss.
    Only the embedder is needed after training. Everything is computed in float32, regardless of autocast.
    """

    needs_triplets = True

    def __init__(
        self,
        embed: Embed,
        loss: nn.Module,
        optimizer: torch.optim.Optimizer,
        classes: int,
        dim: int,
        miner: Miner | None = None,
        hard_loss: nn.Module | None = None,
        settings: GenerationSettings | None = None,
        device: torch.device | str = "cpu",
        stepper: Stepper | None = None,
    ) -> None:
        self.settings = settings = settings or GenerationSettings()
        self.embed = embed
        self.loss = loss
        self.hard_loss = loss if hard_loss is None else hard_loss
        self.miner = miner
        self.stepper = stepper or Stepper()
        self.classes = classes
        widths = (settings.generator_width, settings.discriminator_width)
        self.networks = GenerationNetworks(classes, dim, *widths).to(device)
        rates = settings.rates(optimizer.param_groups[0]["lr"])  # the first group is the embedder's
        optimizer.add_param_group(
            {
                "params": list(self.networks.classifier.parameters()),
                "lr": rates["classifier"],
                "weight_decay": settings.weight_decay,
            }
        )
        self._optimizers = PartOptimizers("generation", self.stepper, _PARTS)
        self._optimizers["f"] = optimizer
        if settings.generates:
            stages = (1, 2) if settings.second_stage else (1,)
            for stage in stages:
                for kind, rate in (("d", rates["discriminator"]), ("g", rates["generator"])):
                    parameters = getattr(self.networks, f"{kind}{stage}").parameters()
                    self._optimizers.add_adam(f"{kind}{stage}", parameters, rate, settings.weight_decay)
        self.epoch = 0
        self.threshold = EpochMean()
        self.loss_g = math.inf  # Eqs. 5 and 19 before the first step: an untrained generator's samples get no weight
        self.buffer = SampleBuffer(settings.buffer_steps)
        self.watch = CollapseWatch()
        self._used: list[int | None] = []  # pairs or triplets of this step's losses

    @classmethod
    def for_run(cls, parts: RunParts, **options: Any) -> Self:
        """Make the method of a run, and its loss for the generated triplets if the recipe names one."""
        settings = GenerationSettings(**options)
        hard_loss = None if settings.hard_loss == "same" else parts.make_loss(settings.hard_loss)
        learned = nn.ModuleList([parts.loss, *([] if hard_loss is None else [hard_loss])])
        return cls(
            parts.embed_unit,
            parts.loss,
            parts.make_optimizer(learned),
            parts.classes,
            parts.dim,
            None if getattr(parts.miner, "func", None) is uniform else parts.miner,  # it has such triplets already
            hard_loss,
            settings,
            parts.device,
            parts.stepper,
        )

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The embedder's (with the classifier), and one for each generator and discriminator."""
        return list(self._optimizers.values())

    def begin_epoch(self, epoch: int) -> None:
        """Set the epoch (from 0) of the next steps; the threshold of Eq. 11 is the previous epoch's."""
        if epoch != self.epoch:
            self.threshold.end_epoch()
        self.epoch = epoch

    def step(self, batch: TrainingBatch) -> dict[str, float | str]:
        """Learn from one batch and return every loss, weight and threshold, and a ``warning`` if there is one."""
        x = self.stepper.embed(self.embed, batch)
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            triplets = random_triplets(batch.labels)
            if not triplets.shape[1]:
                return {"loss": 0.0, "triplets": 0.0}
            distances = pair_distance(x.detach()[triplets[0]], x.detach()[triplets[1]], self.settings.metric)
            self.threshold.add(distances)
            self._used.clear()
            original_only = self.epoch < self.settings.pretrain_epochs or not self.settings.generates
            learn = self._learn_original if original_only else self._learn_generated
            return {**learn(x, batch.labels, triplets), **logged_tuples(*self._used)}

    def _learn_original(self, x: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> dict[str, float | str]:
        """Update the embedder with the original triplets and categories: pre-training, or the triplet baseline."""
        log: dict[str, Any] = {"triplets": float(triplets.shape[1]), "w_org": 1.0}
        log["loss"] = log["org"] = self._original(x, labels, triplets)
        if self.settings.generates:
            log["class_F"], _ = self._category(x, labels, triplets, *_nothing_made(x, triplets))
            log["loss"] = log["org"] + self.settings.phi * log["class_F"]
        self._optimizers.learn("f", log["loss"])
        return plain_numbers(log)

    def _learn_generated(self, x: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> dict[str, float | str]:
        """Run one iteration of Algorithm 1 in the text's order: discriminator, then generator, the embedder last."""
        settings, networks = self.settings, self.networks
        dt = self.threshold.value()
        w_org, w_hard = balance_weights(self.loss_g, settings.beta)
        tau_r = reverse_margin(self.loss_g, settings.nu, settings.beta)
        y = labels[triplets]
        log: dict[str, Any] = {"dt": dt, "triplets": float(triplets.shape[1])}

        # Line 5: X, X* and X'. Gradients of what is not detached reach the embedder, for line 11.
        apn = x[triplets]
        x_star = plm(apn[0], apn[1], dt, settings.alpha, settings.gamma, settings.metric)
        x1 = networks.g1(x_star.detach())

        # Line 6: the first stage.
        log["LD1"] = discriminator1_loss(apn[:2].detach(), x1.detach(), x_star.detach(), networks.d1).mean()
        self._optimizers.learn("d1", log["LD1"])
        log |= _means(generator1_loss(x1, x_star.detach(), y[:2], networks.classifier, networks.d1, settings.eta))
        self._optimizers.learn("g1", log["LG1"])

        # Lines 7 and 8: X' again, by the updated generator, and the generated triplets.
        x1 = networks.g1(x_star)
        x2 = second_stage_input = torch.cat([x1, apn[2:]])

        if settings.second_stage:
            # Line 9: the second stage.
            real = second_stage_input.detach()
            x2 = networks.g2(real)
            log["LD2"] = discriminator2_loss(real, x2.detach(), y, networks.d2, settings.normalize_d2).mean()
            self._optimizers.learn("d2", log["LD2"])
            log |= _means(
                generator2_loss(x2, real[:2], y, networks.classifier, networks.d2, tau_r, settings.eta, settings.mu)
            )
            self._optimizers.learn("g2", log["LG2"])
            # Line 10: the generated triplets again.
            x2 = networks.g2(second_stage_input)
            log["tau_r"] = tau_r

        # Line 11: the embedder, with gradients that run through the updated generators.
        made, made_labels = (torch.cat([x1, x2]), torch.cat([y[:2], y])) if settings.second_stage else (x1, y[:2])
        org = self._original(x, labels, triplets)
        hard = self._hard(x2, y) if settings.hard else org  # without a hard term both weights go to the original one
        class_f, kept = self._category(x, labels, triplets, made, made_labels)
        loss = embedding_loss(org, class_f, hard, w_org, settings.phi)
        self._optimizers.learn("f", loss)

        self.loss_g = log["LG2" if settings.second_stage else "LG1"].item()
        log |= {"loss": loss, "org": org, "class_F": class_f, "w_org": w_org if settings.hard else 1.0}
        log |= {"hard": hard, "w_hard": w_hard} if settings.hard else {}
        return self._judge(log, x, labels, made, made_labels, kept)

    def _original(self, x: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> torch.Tensor:
        """Eq. 6, or Eq. 25's term with a miner: the loss of the original samples."""
        if self.miner is None:
            chosen, loss = tuple(triplets), loss_of_triplets(self.loss, x, labels, triplets)
        else:
            chosen = self.miner(x.detach(), labels)
            loss = self.loss(x, labels, chosen)
        self._used.append(tuples_used(self.loss, chosen))
        return loss

    def _hard(self, x2: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Eq. 7: the loss of the generated triplets (3, T, d), and of the same pairs with negatives from the buffer."""
        count = y.shape[1]
        triplets = torch.arange(3 * count, device=y.device).reshape(3, count)
        others, other_labels, rows = self.buffer.nearest_others(x2[0].detach(), y[0])
        if len(rows):
            stored = 3 * count + torch.arange(len(rows), device=y.device)
            triplets = torch.cat([triplets, torch.stack([rows, count + rows, stored])], dim=1)
        x, labels = torch.cat([x2.flatten(0, 1), others]), torch.cat([y.flatten(), other_labels])
        loss = loss_of_triplets(self.hard_loss, x, labels, triplets)
        self._used.append(tuples_used(self.hard_loss, tuple(triplets)))
        return loss

    def _category(
        self,
        x: torch.Tensor,
        labels: torch.Tensor,
        triplets: torch.Tensor,
        made: torch.Tensor,
        made_labels: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Eq. 8: the mean over triplets of their samples' softmax losses, and which generated (S, T) are right.

        A real sample is classified once, however many triplets it is in. If the category loss is turned off, it gives
        the embedder no gradient, but the classifier still learns, since the generators need it.
        """
        count, shape = len(x), made.shape[:2]
        samples = torch.cat([x, made.flatten(0, 1)])
        targets = torch.cat([labels, made_labels.flatten()])
        logits = self.networks.classifier(samples if self.settings.category else samples.detach())
        losses = sample_losses(logits, targets)
        kept = (logits.detach()[count:].argmax(dim=-1) == targets[count:]).reshape(shape)
        return (losses[:count][triplets].sum() + losses[count:].sum()) / triplets.shape[1], kept

    def _judge(
        self,
        log: dict[str, Any],
        x: torch.Tensor,
        labels: torch.Tensor,
        made: torch.Tensor,
        made_labels: torch.Tensor,
        kept: torch.Tensor,
    ) -> dict[str, float | str]:
        """Return what to log about the quality of generated samples: labels kept, and spread relative to real ones.

        Samples of the last stage that are still classified correctly go into the buffer.
        """
        last = slice(2, None) if self.settings.second_stage else slice(None)
        final, final_labels = made.detach()[last].flatten(0, 1), made_labels[last].flatten()
        right = kept[last].flatten()
        if self.settings.buffer_steps:
            self.buffer.add(final[right], final_labels[right])
        ratios = class_spread_ratio(x.detach(), labels, final, final_labels, self.classes)
        log["kept1"] = kept[:2].double().mean()
        if self.settings.second_stage:
            log["kept2"] = kept[2:].double().mean()
        values = plain_numbers(log)
        if len(ratios):
            values["diversity"] = float(ratios.median())
            values["collapsed"] = float((ratios < COLLAPSED).double().mean())
            warning = self.watch.see(values["collapsed"])
            values |= {"warning": warning} if warning else {}
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return all state except the embedder's weights: losses, networks, optimizers, threshold, weights, buffer."""
        return {
            "loss": self.loss.state_dict(),
            "hard_loss": self.hard_loss.state_dict(),
            "networks": self.networks.state_dict(),
            "optimizers": self._optimizers.state_dict(),
            "epoch": self.epoch,
            "threshold": self.threshold.state_dict(),
            "loss_g": self.loss_g,
            "buffer": self.buffer.state_dict(),
            "watch": self.watch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.loss.load_state_dict(state["loss"])
        self.hard_loss.load_state_dict(state["hard_loss"])
        self.networks.load_state_dict(state["networks"])
        self._optimizers.load_state_dict(state["optimizers"])
        self.epoch = state["epoch"]
        self.threshold.load_state_dict(state["threshold"])
        self.loss_g = state["loss_g"]
        self.buffer.load_state_dict(state["buffer"], next(self.networks.parameters()).device)
        self.watch.load_state_dict(state["watch"])


def _nothing_made(x: torch.Tensor, triplets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return generated samples (0, T, d) and their labels (0, T)."""
    return x.new_zeros(0, triplets.shape[1], x.shape[1]), triplets[:0]


def _means(parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the means over triplets."""
    return {name: part.mean() for name, part in parts.items()}
