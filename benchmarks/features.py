"""Speed of a frozen EfficientNet-Lite0: eager torch against onnxruntime, batches of 32 images."""

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import side_by_side
from tophit.models import build_embedder
from tophit.models.engines import OnnxEngine, TorchEngine

BATCH = 32


def main() -> None:
    table = Table("input", "torch, images/s", "onnxruntime, images/s", "times faster", title="EfficientNet-Lite0, CPU")
    for size in (64, 128, 224):
        embedder = build_embedder(size=size)
        images = np.random.default_rng(0).normal(size=(BATCH, 3, size, size)).astype(np.float32)
        eager, exported = TorchEngine(embedder), OnnxEngine(embedder)
        seconds = side_by_side(
            {"torch": lambda e=eager, x=images: e.compute(x), "onnx": lambda e=exported, x=images: e.compute(x)}
        )
        speeds = {name: BATCH / value for name, value in seconds.items()}
        ratio = seconds["torch"] / seconds["onnx"]
        table.add_row(f"{size} px", f"{speeds['torch']:.0f}", f"{speeds['onnx']:.0f}", f"{ratio:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
