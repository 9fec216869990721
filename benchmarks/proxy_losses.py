"""Time and peak memory of the proxy losses, forward and backward, against a peer and the bare matrix product.

    python -m benchmarks.proxy_losses

512 dimensions, batch 384, float32; gradients for embeddings and proxies. Times are CPU time, medians of rounds in which
all take turns, so that a busy machine matters little. Memory is the rise of the peak resident size over one call, in a
separate process; proxies and batch are allocated before. The bare product is: normalise both, one product, backward
from a dense gradient. The peer is pytorch-metric-learning's SoftTripleLoss, alone and with its
SparseCentersRegularizer, which is the regulariser that ours always has.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks import peak_rise, side_by_side
from benchmarks.dense_sum import dense_sum
from tophit.losses import MultiProxyAnchorLoss, ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss

DIM = 512
BATCH = 384


class BareProduct(nn.Module):
    """The product every proxy loss needs, without a loss."""

    def __init__(self, classes: int, dim: int, count: int) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(classes * count, dim))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return a sum over all similarities of x (N, d) to the proxies."""
        product = functional.normalize(x, dim=1) @ functional.normalize(self.proxies, dim=1).T
        return dense_sum(product)


def peer_soft_triple(classes: int, dim: int, count: int, regularized: bool) -> nn.Module:
    from pytorch_metric_learning import losses as peer
    from pytorch_metric_learning.regularizers import SparseCentersRegularizer

    if not regularized:
        return peer.SoftTripleLoss(classes, dim, centers_per_class=count)
    regularizer = SparseCentersRegularizer(classes, count)
    return peer.SoftTripleLoss(
        classes, dim, centers_per_class=count, weight_regularizer=regularizer, weight_reg_weight=0.2
    )


MAKERS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "bare product": BareProduct,
    "Proxy-Anchor": lambda classes, dim, count: ProxyAnchorLoss(classes, dim),
    "ProxyNCA++": lambda classes, dim, count: ProxyNCALoss(classes, dim, 1 / 9, probability=True),
    "MPA": lambda classes, dim, count: MultiProxyAnchorLoss(classes, dim, count),
    "MPA-DW": lambda classes, dim, count: MultiProxyAnchorLoss(classes, dim, count, "data"),
    "MPA-AP": lambda classes, dim, count: MultiProxyAnchorLoss(classes, dim, count, "all-pairs"),
    "SoftTriple": SoftTripleLoss,
    "PML SoftTriple": partial(peer_soft_triple, regularized=False),
    "PML SoftTriple, regularised": partial(peer_soft_triple, regularized=True),
}
SINGLE = ("bare product", "Proxy-Anchor", "ProxyNCA++")
SEVERAL = ("bare product", "MPA", "MPA-DW", "MPA-AP", "SoftTriple")
PEERS = ("PML SoftTriple", "PML SoftTriple, regularised")


def step(loss: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> None:
    torch.autograd.grad(loss(x, labels), [x, *loss.parameters()])


def batch(classes: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, DIM, generator=generator).requires_grad_()
    return x, torch.randint(0, classes, (size,), generator=generator)


def peak_memory(name: str, classes: int, count: int) -> float:
    """Return the rise of the peak resident size over one call, in MiB. Call it in a fresh process."""
    step(MAKERS[name](4, DIM, count), *batch(4, 16))
    return peak_rise(partial(step, MAKERS[name](classes, DIM, count), *batch(classes, BATCH)))


def peak_memory_apart(name: str, classes: int, count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.proxy_losses", "--memory-of", name, str(classes), str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_table(names: tuple[str, ...], classes: int, count: int, rounds: int) -> None:
    made = {name: MAKERS[name](classes, DIM, count) for name in names}
    steps = {name: partial(step, loss, *batch(classes, BATCH)) for name, loss in made.items()}
    found = side_by_side(steps, rounds, time.process_time)
    del made, steps
    base, peers = found["bare product"], [name for name in names if name in PEERS]
    head = ["ms", "times the bare product", *(f"{peer}: times as long" for peer in peers), "peak MiB"]
    print(f"| C = {classes:,}, K = {count} | " + " | ".join(head) + " |\n| --- |" + " --- |" * len(head))
    for name in names:
        cells = [f"{1000 * found[name]:.1f}", f"{found[name] / base:.2f}"]
        cells += [f"{found[peer] / found[name]:.2f}" for peer in peers]
        print(f"| {name} | " + " | ".join(cells) + f" | {peak_memory_apart(name, classes, count):.0f} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory-of", nargs=3, metavar=("LOSS", "CLASSES", "PROXIES"), help="print only its memory")
    parser.add_argument("--all-peers", action="store_true", help="also run the peer with its regulariser at C = 11,318")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        name, classes, count = arguments.memory_of
        print(peak_memory(name, int(classes), int(count)))
        return
    print(f"torch {torch.__version__}, {arguments.threads} thread, {arguments.rounds} rounds\n")
    print_table((*SEVERAL, *PEERS), 100, 10, 5 * arguments.rounds)
    # The peer's regulariser compares all pairs of proxies, here 22,636 x 22,636 numbers: minutes and gigabytes.
    print_table((*SEVERAL, *(PEERS if arguments.all_peers else PEERS[:1])), 11_318, 2, arguments.rounds)
    print_table(SINGLE, 100_000, 1, arguments.rounds)


if __name__ == "__main__":
    main()
