"""The cost of a step of THSG compared with a plain step of the triplet loss.

    python -m benchmarks.thsg

Batches of 32 classes x 4 images of the 298 classes that the icon set trains on, EfficientNet-Lite0, embeddings of
length 128, no miner in either. CPU time, medians of rounds in which both take turns, so a busy machine matters little.
- backbone trained: images of 64 pixels, forward and backward through the whole network.
- backbone frozen: the same images forward through the backbone, without a gradient; the head learns.
- cached features: the backbone's output is already computed, as with ``embedder.trainable: head``.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks import side_by_side
from tophit.losses import TripletLoss
from tophit.methods import GenerationMethod, GenerationSettings, Method, PlainMethod, TrainingBatch
from tophit.models import build_embedder
from tophit.models.embedder import Embedder

CLASSES, IN_BATCH, PER_CLASS, DIM, SIDE = 298, 32, 4, 128, 64


def make_embed(embedder: Embedder, setting: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function that maps a batch's inputs to embeddings."""
    embedder.train()
    for module in embedder.backbone.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    embedder.backbone.requires_grad_(setting == "backbone trained")
    return embedder.embed_features if setting == "cached features" else embedder


def make_method(name: str, setting: str) -> Method:
    """Return a method with its own embedder."""
    torch.manual_seed(0)
    embedder = build_embedder(weights="random", dim=DIM, size=SIDE)
    embed = make_embed(embedder, setting)
    optimizer = torch.optim.AdamW([p for p in embedder.parameters() if p.requires_grad], lr=1e-4)
    if name == "plain":
        return PlainMethod(embed, TripletLoss(), optimizer)
    settings = GenerationSettings(pretrain_epochs=0)
    return GenerationMethod(embed, TripletLoss(), optimizer, CLASSES, DIM, settings=settings)


def make_batch(setting: str) -> TrainingBatch:
    torch.manual_seed(0)
    size = IN_BATCH * PER_CLASS
    inputs = torch.randn(size, 1280) if setting == "cached features" else torch.randn(size, 3, SIDE, SIDE)
    labels = torch.randperm(CLASSES)[:IN_BATCH].repeat_interleave(PER_CLASS)
    return TrainingBatch(inputs, labels, torch.arange(size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} thread, {arguments.rounds} rounds\n")
    print("| setting | triplet, ms | THSG, ms | times |\n| --- | --- | --- | --- |")
    for setting in ("backbone trained", "backbone frozen", "cached features"):
        batch = make_batch(setting)
        methods = {name: make_method(name, setting) for name in ("plain", "THSG")}
        found = side_by_side(
            {name: partial(m.step, batch) for name, m in methods.items()}, arguments.rounds, time.process_time
        )
        ratio = found["THSG"] / found["plain"]
        print(f"| {setting} | {1e3 * found['plain']:.1f} | {1e3 * found['THSG']:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
