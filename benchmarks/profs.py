"""Cost of PROFS: a step against the plain one, the miners against pytorch-metric-learning's, and class mining.

    python -m benchmarks.profs

Times are CPU time of one thread, medians of rounds in which all take turns. All steps use the same loss on the same
batch of 32 classes x 4 images of 64 pixels; the plain one has the balanced-hard miner if the loss needs one. Miners
choose from 1024 vectors of 128 dimensions, 4 per class. Class mining chooses 64 of 100,000 classes.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, repeat
from time import process_time
from typing import Literal

import numpy as np
import torch
from torch import nn

from benchmarks import side_by_side
from tophit.batches import BalancedBatchSampler, RepresentativeBatchSampler
from tophit.losses import NPairLoss, TripletLoss
from tophit.methods import Method, PlainMethod, ProjectionMethod, TrainingBatch
from tophit.mining import mine
from tophit.models import build_embedder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print_miners(arguments.rounds)
    print_class_mining(arguments.rounds)
    print_steps(arguments.rounds)


def print_steps(rounds: int) -> None:
    print("| what learns, loss | plain ms | PROFS | with HNCM |\n| --- | --- | --- | --- |")
    for what in ("head", "whole network"):
        for name, loss in (("triplet", TripletLoss), ("n-pair", NPairLoss)):
            # A head's step is a few milliseconds: many of them make one round.
            repeats = 50 if what == "head" else 1
            times = side_by_side(step_contenders(what == "head", loss, repeats), rounds, process_time)
            plain = times["plain"]
            ratios = " | ".join(f"{times[way] / plain:.2f} x" for way in ("PROFS", "HNCM"))
            print(f"| {what}, {name} | {1000 * plain / repeats:.1f} | {ratios} |", flush=True)
    print()


def step_contenders(head: bool, make_loss: Callable[[], nn.Module], repeats: int) -> dict[str, Callable[[], None]]:
    """Return a step of each method on the batch that the sampler drew."""
    labels = torch.arange(3000) // 10
    contenders = {}
    for way in ("plain", "PROFS", "HNCM"):
        torch.manual_seed(0)
        embedder = build_embedder(dim=128, size=64, crop=1.0)
        module = embedder.head if head else embedder
        sampler = RepresentativeBatchSampler(labels.tolist(), 32, 4, hncm=way == "HNCM")
        rows = torch.tensor(sampler.next_batch())
        shape = (embedder.backbone.channels,) if head else (3, 64, 64)
        batch = TrainingBatch(torch.randn(len(rows), *shape), labels[rows], rows)
        loss, optimizer = make_loss(), torch.optim.AdamW(module.parameters(), lr=1e-5)
        method: Method
        if way == "plain":
            miner = partial(mine, strategy="balanced-hard") if isinstance(loss, TripletLoss) else None
            method = PlainMethod(module, loss, optimizer, miner)
        else:
            method = ProjectionMethod(module, loss, optimizer, sampler)
        plain_sampler = BalancedBatchSampler(labels.tolist(), 32, 4)
        contenders[way] = partial(take_steps, method, batch, plain_sampler if way == "plain" else sampler, repeats)
    return contenders


def take_steps(
    method: Method,
    batch: TrainingBatch,
    sampler: BalancedBatchSampler | RepresentativeBatchSampler,
    repeats: int,
) -> None:
    """Learn from one batch several times, and draw as many batches, as a run would."""
    coming = chain.from_iterable(repeat(sampler))
    for _ in range(repeats):
        method.step(batch)
        if isinstance(sampler, RepresentativeBatchSampler):
            kept = sampler.representatives
            next(coming)
            sampler.representatives = kept  # the batch's own, even if a new projection has begun
        else:
            next(coming)


def print_miners(rounds: int) -> None:
    from pytorch_metric_learning import distances, miners
    from pytorch_metric_learning.utils.loss_and_miner_utils import get_random_triplet_indices

    labels = torch.arange(1024) // 4
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 128, generator=generator)[labels] + torch.randn(1024, 128, generator=generator)
    semi_hard = miners.TripletMarginMiner(0.2, "semihard", distance=distances.LpDistance(power=2))
    pairs: Mapping[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "hard": (partial(mine, x, labels, "hard"), partial(miners.BatchHardMiner(), x, labels)),
        "semi-hard, every": (partial(mine, x, labels, "semi-hard", every=True), partial(semi_hard, x, labels)),
        "distance-weighted": (
            partial(mine, x, labels, "distance-weighted"),
            partial(miners.DistanceWeightedMiner(), x, labels),
        ),
        "uniform": (partial(mine, x, labels, "uniform"), partial(get_random_triplet_indices, labels)),
    }
    print("| miner, batch 1024 | ms | peer ms | times faster |\n| --- | --- | --- | --- |")
    for name, (ours, peer) in pairs.items():
        times = side_by_side({"ours": ours, "peer": peer}, rounds, process_time)
        cells = f"{1000 * times['ours']:.1f} | {1000 * times['peer']:.1f} | {times['peer'] / times['ours']:.1f}"
        print(f"| {name} | {cells} |", flush=True)
    print()


def print_class_mining(rounds: int) -> None:
    print("| 100,000 classes, dimensions | pool, ms per batch | seeds | chain | one pass alone |\n|" + " --- |" * 5)
    for dim in (128, 512):
        vectors = np.random.default_rng(0).normal(size=(100_000, dim)).astype(np.float32)
        contenders: dict[str, Callable[[], object]] = {
            hncm: mining_sampler(vectors, hncm).next_batch for hncm in ("pool", "seeds", "chain")
        }
        contenders["pass"] = partial(np.matmul, vectors, vectors[7])
        times = side_by_side(contenders, rounds, process_time)
        print(f"| {dim} | " + " | ".join(f"{1000 * time:.1f}" for time in times.values()) + " |", flush=True)
    print()


def mining_sampler(vectors: np.ndarray, hncm: Literal["pool", "seeds", "chain"]) -> RepresentativeBatchSampler:
    """Return a sampler of batches of 64 classes, all with an embedding, inside a projection."""
    labels = np.repeat(np.arange(len(vectors)), 2)
    sampler = RepresentativeBatchSampler(labels.tolist(), 64, 2, hncm=hncm)
    sampler.update(np.arange(len(vectors)) * 2, vectors)
    sampler.next_batch()  # the first one chooses all representatives
    return sampler


if __name__ == "__main__":
    main()
