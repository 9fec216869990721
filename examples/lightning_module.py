"""A Lightning module that learns with a loss of Tophit and measures with its metrics."""

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import tophit
from tophit.batches import BalancedBatchSampler
from tophit.evaluation import retrieval_metrics
from tophit.losses import PNPLoss


class Head(pl.LightningModule):
    """A linear layer on the vectors of a frozen network."""

    def __init__(self, channels: int, dim: int = 64) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(channels, dim)
        self.loss = PNPLoss()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], number: int) -> torch.Tensor:
        """Return the loss of a batch of features (N, c) and labels (N,)."""
        features, labels = batch
        return self.loss(self.layer(features), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what changes the weights."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


found = tophit.embed("photos/")
classes = sorted(set(found.labels))
features, labels = torch.from_numpy(found.vectors), torch.tensor([classes.index(label) for label in found.labels])
learned = labels < len(classes) // 2  # the other classes are for testing

pl.seed_everything(0, verbose=False)
sampler = BalancedBatchSampler(labels[learned].tolist(), classes=4, per_class=4)
loader = DataLoader(TensorDataset(features[learned], labels[learned]), batch_sampler=sampler)
head = Head(features.shape[1])
trainer = pl.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(head, loader)

with torch.no_grad():
    metrics = retrieval_metrics(head.layer(features[~learned]), labels[~learned], confidence=0.95)
print({name: f"{100 * metrics[name]:.1f}" for name in ("recall@1", "MAP@R")}, metrics.intervals["recall@1"])
