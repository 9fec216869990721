"""Engines that run a frozen backbone: eager torch, or onnxruntime where it is installed (faster on CPUs)."""

import importlib.util
import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import nn

from tophit.files import cache_folder, replace_file

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

_WORTH_EXPORTING = 500  # images; below that the export costs more than it saves
_NEEDED = ("onnx", "onnxscript", "onnxruntime")


class FeatureEngine(Protocol):
    """Computes pooled features; ``name`` goes into cache keys, since engines differ in the last digits."""

    name: str

    def compute(self, images: np.ndarray) -> np.ndarray:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels), float32."""
        ...


def feature_engine(embedder: "Embedder", images: int) -> FeatureEngine:
    """Return the fastest engine for so many images on the embedder's device; the same number gives the same engine."""
    if images >= _WORTH_EXPORTING and embedder.device.type == "cpu" and onnx_installed():
        return OnnxEngine(embedder)
    return TorchEngine(embedder)


def onnx_installed() -> bool:
    """Say whether export to ONNX and onnxruntime are at hand; ``TOPHIT_ONNX=0`` turns them off."""
    if os.environ.get("TOPHIT_ONNX") == "0":
        return False
    return all(importlib.util.find_spec(name) for name in _NEEDED)


class TorchEngine:
    """Eager torch on whatever device the embedder is."""

    name = "torch"

    def __init__(self, embedder: "Embedder") -> None:
        self.embedder = embedder.eval()

    @torch.inference_mode()
    def compute(self, images: np.ndarray) -> np.ndarray:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels)."""
        return self.embedder.features(torch.from_numpy(images).to(self.embedder.device)).cpu().numpy()


class OnnxEngine:
    """onnxruntime on the CPU; the exported graph is kept in the cache, by the weights' digest."""

    name = "onnxruntime"

    def __init__(self, embedder: "Embedder") -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        path = _exported(embedder)
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def compute(self, images: np.ndarray) -> np.ndarray:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels)."""
        return np.asarray(self.session.run(None, {"images": images})[0])


class _Pooled(nn.Module):
    def __init__(self, embedder: "Embedder") -> None:
        super().__init__()
        self.embedder = embedder

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.embedder.pool(self.embedder.backbone(images))


def _exported(embedder: "Embedder") -> Path:
    path = cache_folder() / "onnx" / f"{embedder.feature_fingerprint()}.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            export_features(embedder, temporary)
    return path


def export_features(embedder: "Embedder", path: Path) -> None:
    """Write backbone and pooling as an ONNX graph with a free batch size."""
    size = embedder.preprocessing.size
    example = torch.zeros(2, 3, size, size, device=embedder.device)
    noisy = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = noisy.level
    noisy.setLevel(logging.ERROR)  # it warns of each torchvision operator, used or not
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Pooled(embedder).eval(),
                (example,),
                path,
                input_names=["images"],
                output_names=["features"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        noisy.setLevel(level)
