"""The cost of reduced precision on the demo set: retrieval metrics of float32 and bf16 vectors of the test icons."""

import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from tophit.data.dataset import ImageDataset, image_loader
from tophit.data.icons import icon_set
from tophit.evaluation import retrieval_metrics
from tophit.models import build_embedder
from tophit.models.runtimes import build_runtime

METRICS = ("recall@1", "precision@5", "MAP@R", "mAP")


def main() -> None:
    torch.set_num_threads(1)
    embedder = build_embedder(size=64, crop=1.0).eval()
    rows = icon_set().where("test").rows
    images = np.concatenate([b.images.numpy() for b in image_loader(ImageDataset(rows, embedder.preprocessing), 64)])
    labels = np.unique([row.label for row in rows], return_inverse=True)[1]
    table = Table("precision", *METRICS, "images/s", title=f"{len(rows)} test icons, EfficientNet-Lite0, %")
    found: dict[str, list[float]] = {}
    for precision in ("fp32", "bf16"):
        runtime = build_runtime("torch", embedder, precision)
        start = time.process_time()
        features = np.concatenate([runtime.compute(images[i : i + 64]) for i in range(0, len(images), 64)])
        speed = len(images) / (time.process_time() - start)
        metrics = retrieval_metrics(torch.from_numpy(embedder.embed_arrays(features)), torch.from_numpy(labels))
        found[precision] = [100 * metrics[name] for name in METRICS]
        table.add_row(precision, *(f"{value:.2f}" for value in found[precision]), f"{speed:.0f}")
    change = np.subtract(found["bf16"], found["fp32"])
    table.add_row("difference", *(f"{value:+.2f}" for value in change), "")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
