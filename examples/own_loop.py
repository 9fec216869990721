"""A PyTorch loop of your own with Tophit's losses, miners and samplers.

The model is a linear layer on the vectors of a frozen network. Any module that returns (N, d) will do.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

import tophit
from tophit.batches import BalancedBatchSampler
from tophit.losses import MarginLoss
from tophit.mining import mine

EPOCHS = 5

found = tophit.embed("photos/")  # (N, 1280), by efficientnet-lite0
classes = sorted(set(found.labels))
vectors, labels = torch.from_numpy(found.vectors), torch.tensor([classes.index(label) for label in found.labels])

torch.manual_seed(0)
model = torch.nn.Linear(vectors.shape[1], 64)
loss = MarginLoss()
sampler = BalancedBatchSampler(found.labels, classes=8, per_class=4)
loader = DataLoader(TensorDataset(vectors, labels), batch_sampler=sampler)
optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()], lr=1e-3)

for epoch in range(EPOCHS):
    sampler.epoch = epoch  # other batches in each epoch, the same ones in each run
    for features, targets in loader:
        embeddings = model(features)
        triplets = mine(embeddings.detach(), targets, "distance-weighted")
        value = loss(embeddings, targets, triplets=triplets)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {value.item():.3f}")  # pyright: ignore[reportPossiblyUnboundVariable]
