"""Speed of embedding with a frozen EfficientNet-Lite0 on one thread: every runtime against plain eager torch.

Plain eager is the network called directly: default layout, gradients recorded. torch-contiguous is the same under
inference_mode, and has its own column. Seconds are CPU time, so that a busy machine matters little.
"""

import sys
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import side_by_side
from tophit.models import Embedder, build_embedder
from tophit.models.runtimes import ContiguousRuntime, build_runtime, runtimes_at_hand

BACKBONES = ("efficientnet-lite0",)
SIZES = {1: 15, 32: 5}  # images in a batch, rounds


def measure(backbone: str, batch: int, rounds: int, table: Table) -> None:
    embedder = build_embedder(backbone, "pretrained" if "lite" in backbone else "random").eval()
    side = embedder.preprocessing.size
    images = np.random.default_rng(0).normal(size=(batch, 3, side, side)).astype(np.float32)
    plain = ContiguousRuntime(embedder)
    names = ["torch-contiguous", *(name for name in runtimes_at_hand() if name != "torch-contiguous")]
    runtimes = {name: build_runtime(name, embedder) for name in names}
    contenders = {"plain eager": lambda: plain.run(torch.from_numpy(images))}
    contenders |= {name: lambda runtime=runtime: runtime.compute(images) for name, runtime in runtimes.items()}
    seconds = side_by_side(contenders, rounds, time.process_time)
    expected = embedded(embedder, runtimes["torch-contiguous"].compute(images))
    for name, value in seconds.items():
        distance = ""
        if name in runtimes:
            found = embedded(embedder, runtimes[name].compute(images))
            distance = f"{max(0.0, float(1 - (found * expected).sum(1).min())):.0e}"
        ratios = [f"{seconds[base] / value:.1f}" for base in ("plain eager", "torch-contiguous")]
        table.add_row(backbone, str(batch), name, f"{batch / value:.1f}", *ratios, distance)


def embedded(embedder: Embedder, features: np.ndarray) -> np.ndarray:
    return embedder.embed_arrays(features).astype(np.float64)


def main() -> None:
    torch.set_num_threads(1)
    ratios = ("times plain eager", "times inference_mode")
    table = Table("backbone", "batch", "runtime", "images/s", *ratios, "largest cosine distance")
    for backbone in sys.argv[1:] or BACKBONES:
        for batch, rounds in SIZES.items():
            measure(backbone, batch, rounds, table)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
