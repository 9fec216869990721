"""Time and peak memory of the ranking losses, forward and backward, against their peers and the bare similarity.

    python -m benchmarks.ranking_losses

512 dimensions, 4 images per class, float32. Times are medians of rounds in which all take turns, so a busy machine
slows both sides. Memory is the rise of the peak resident size over one call, in a separate process. The bare similarity
is: normalise, one product of the batch with itself, backward. The peer is pytorch-metric-learning; from a batch of 1024
on it needs more memory than this machine has.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional

from benchmarks import peak_rise, side_by_side
from benchmarks.dense_sum import dense_sum
from tophit.losses import (
    FastAPLoss,
    HAPPIERLoss,
    HistogramLoss,
    MultiSimilarityLoss,
    PNPLoss,
    RecallAtKLoss,
    RoadmapLoss,
    SmoothAPLoss,
    SupRankLoss,
    TopKPrecisionLoss,
)

DIM = 512
PER_CLASS = 4
MEBI = 2**20
OLDER = ["PNP", "Smooth-AP", "top-k"]
NEWER = ["recall@k", "ROADMAP", "SupRank nDCG", "HAPPIER", "multi-similarity", "FastAP", "histogram"]
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bare_similarity(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return a sum over the similarity matrix: its backward pass is that of any loss, without the loss."""
    unit = functional.normalize(x, dim=1)
    return dense_sum(unit @ unit.T)


def sorted_negatives(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return a sum after sorting every row of the similarity matrix: the cost of a core that sorts first."""
    with torch.no_grad():
        unit = functional.normalize(x, dim=1)
        (unit @ unit.T).sort(dim=1)
    return x.sum()


def make(name: str) -> Step:
    """Return a loss by its name in this file; the peer's are imported only when needed."""
    if name.startswith("PML"):
        from pytorch_metric_learning import losses as peer

        return peer.PNPLoss(variant="Dq", alpha=4) if name == "PML PNP" else peer.SmoothAPLoss()
    ours: dict[str, Step] = {
        "bare similarity": bare_similarity,
        "similarity and sort": sorted_negatives,
        "PNP": PNPLoss(),
        "Smooth-AP": SmoothAPLoss(),
        "top-k": TopKPrecisionLoss(),
        "recall@k": RecallAtKLoss(),
        "ROADMAP": RoadmapLoss(),
        "SupRank nDCG": SupRankLoss(),
        "HAPPIER": HAPPIERLoss(),
        "multi-similarity": MultiSimilarityLoss(),
        "FastAP": FastAPLoss(),
        "histogram": HistogramLoss(),
    }
    return ours[name]


def run_once(step: Step, x: torch.Tensor, labels: torch.Tensor) -> None:
    torch.autograd.grad(step(x, labels), x)


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(size, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return x, torch.arange(size) // PER_CLASS


def times(names: list[str], size: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of each."""
    x, labels = batch(size)
    return side_by_side({name: partial(run_once, make(name), x, labels) for name in names}, rounds)


def peak_memory(name: str, size: int) -> float:
    """Return the rise of the peak resident size over one call, in MiB; linux only. Call it in a fresh process."""
    step = make(name)
    run_once(step, *batch(16))
    return peak_rise(partial(run_once, step, *batch(size)))


def peak_memory_apart(name: str, size: int) -> float:
    command = [sys.executable, "-m", "benchmarks.ranking_losses", "--memory-of", name, "--batch", str(size)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-of", help="print the peak memory of one loss and exit")
    parser.add_argument("--batch", type=int, default=384, help="for --memory-of")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        print(peak_memory(arguments.memory_of, arguments.batch))
        return
    print(f"torch {torch.__version__}, {arguments.threads} thread, {arguments.rounds} rounds\n")
    print_against_peer(112, arguments.rounds, memory=False)
    print_against_peer(384, arguments.rounds, memory=True)
    print_against_similarity(arguments.rounds)


def print_against_peer(size: int, rounds: int, memory: bool) -> None:
    pairs = {"PNP": "PML PNP", "Smooth-AP": "PML Smooth-AP"}
    found = times([*pairs, *pairs.values()], size, rounds)
    print(f"| batch {size} | ms | peer ms | times faster | peak MiB | peer MiB | times less |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, peer in pairs.items():
        cells = [f"{1000 * found[name]:.1f}", f"{1000 * found[peer]:.1f}", f"{found[peer] / found[name]:.0f}"]
        if memory:
            own, theirs = peak_memory_apart(name, size), peak_memory_apart(peer, size)
            cells += [f"{own:.0f}", f"{theirs:.0f}", f"{theirs / own:.0f}"]
        else:
            cells += ["", "", ""]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print()


def print_against_similarity(rounds: int) -> None:
    print("| batch | loss | ms | times the bare similarity | peak MiB | without one similarity matrix |")
    print("| --- | --- | --- | --- | --- | --- |")
    names = ["bare similarity", *OLDER, *NEWER, "similarity and sort"]
    for size in (384, 1024, 4096):
        found = times(names, size, rounds)
        for name in names:
            memory = peak_memory_apart(name, size)
            rest = memory - size * size * 4 / MEBI
            cells = (f"{1000 * found[name]:.1f}", f"{found[name] / found['bare similarity']:.2f}")
            print(f"| {size} | {name} | {cells[0]} | {cells[1]} | {memory:.0f} | {rest:.0f} |", flush=True)


if __name__ == "__main__":
    main()
