"""Tophit's losses inside pytorch-metric-learning, and its losses and miners inside a recipe of Tophit."""

import torch
from pytorch_metric_learning.losses import CrossBatchMemory
from pytorch_metric_learning.miners import MultiSimilarityMiner

import tophit
from tophit.losses import ContrastiveLoss

embeddings, labels = torch.randn(32, 16, requires_grad=True), torch.arange(32) % 8

# A loss takes the arguments of that library, so its miners and its memory work with it.
loss = ContrastiveLoss(margin=0.5)
pairs = MultiSimilarityMiner()(embeddings, labels)
print("with its miner:", loss(embeddings, labels, pairs).item())
print("with its memory:", CrossBatchMemory(loss, embedding_size=16, memory_size=64)(embeddings, labels).item())

# In a recipe, pml/NAME is a loss or miner of that library; its arguments are further keys.
result = tophit.train(
    "photos/",
    out="runs/pml",
    loss={"name": "pml/MultiSimilarityLoss", "alpha": 2.0, "beta": 40.0},
    miner="pml/MultiSimilarityMiner",
    batches={"sampler": "balanced", "classes": 4, "per_class": 4},
    schedule={"epochs": 2},
)
print(result)
