"""Export to ONNX with any batch size: the pooled features, or the whole embedder."""

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import nn

from tophit.files import cache_folder, replace_file

if TYPE_CHECKING:
    from tophit.models.cut import Trunk
    from tophit.models.embedder import Embedder

    Network = Embedder | Trunk


class _Graph(nn.Module):
    def __init__(self, embedder: "Network", output: Literal["features", "vectors"]) -> None:
        super().__init__()
        self.embedder, self.output = embedder, output

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.embedder.pool(self.embedder.backbone(images))
        return features if self.output == "features" else cast("Embedder", self.embedder).embed_features(features)


def export_onnx(embedder: "Network", path: Path, output: Literal["features", "vectors"]) -> None:
    """Write the ONNX graph from images (N, 3, size, size) to pooled features (N, channels) or unit vectors (N, dim)."""
    size = embedder.preprocessing.size
    example = torch.zeros(2, 3, size, size, device=embedder.device)
    noisy = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = noisy.level
    noisy.setLevel(logging.ERROR)  # it warns about each torchvision operator, used or not
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Graph(embedder, output).eval(),
                (example,),
                path,
                input_names=["images"],
                output_names=[output],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        noisy.setLevel(level)


def cached_graph(embedder: "Network") -> Path:
    """Return the exported graph of the pooled features, kept in the cache by the weights' digest."""
    path = _graph_path(embedder)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            export_onnx(embedder, temporary, "features")
    return path


def has_cached_graph(embedder: "Network") -> bool:
    """Say whether an earlier command has exported the graph, so that it need not be done now."""
    return _graph_path(embedder).is_file()


def _graph_path(embedder: "Network") -> Path:
    return cache_folder() / "onnx" / f"{embedder.feature_fingerprint()}.onnx"
