"""Runtimes that run a frozen backbone: torch, or onnxruntime and OpenVINO where they are installed (faster on CPUs)."""

import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from tophit.data.dataset import ImageDataset, PictureSource, image_loader
from tophit.files import cache_folder, create_text
from tophit.models.onnx_export import cached_graph, has_cached_graph
from tophit.models.running import RUNTIMES, check_runtime, named_runtime, runtimes_at_hand
from tophit.progress import Progress

if TYPE_CHECKING:
    from tophit.models.cut import Trunk
    from tophit.models.embedder import Embedder

    Network = Embedder | Trunk  # what a runtime runs

BATCH = 64  # default number of images at a time
WORTH_LOADING = 32  # images; below this, loading an exported graph costs more than it saves
_WORTH_CHOOSING = 500  # images; below this, exporting and measuring cost more than they save


class Runtime(Protocol):
    """Computes pooled features; ``name`` goes into cache keys, since runtimes differ in the last digits."""

    name: str

    def compute(self, images: np.ndarray) -> np.ndarray:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels), float32."""
        ...


@dataclass(frozen=True)
class Features:
    """Pooled features (n, channels) of the readable images, their rows, and the reasons for the unreadable ones."""

    values: np.ndarray
    rows: list[int]
    bad: dict[int, str]


def features_of(
    runtime: Runtime,
    embedder: "Network",
    sources: Sequence[PictureSource],
    batches: Iterable[Sequence[int]] | int = BATCH,
    workers: int = 0,
    progress: Progress | None = None,
) -> Iterator[Features]:
    """Yield the pooled features of images, batch by batch: the one loop from images to features.

    ``batches`` are lists of row numbers, or a batch size for all rows in order; ``workers`` processes read them.
    """
    loader = image_loader(ImageDataset(sources, embedder.preprocessing), batches, workers)
    for batch in progress(loader, len(loader)) if progress and len(loader) else loader:
        images = batch.images.numpy()
        values = runtime.compute(images) if len(images) else np.empty((0, embedder.channels), np.float32)
        yield Features(values, batch.rows.tolist(), batch.bad)


def choose_runtime(
    embedder: "Network", images: int, batch: int = BATCH, runtime: str | None = None, precision: str = "fp32"
) -> Runtime:
    """Return the runtime for a number of images in batches of a given size: the one named, or else the fastest.

    ``TOPHIT_RUNTIME`` can name one too (``TOPHIT_ENGINE`` is its older name). A few images, or an embedder on a GPU,
    use torch. Otherwise the fastest is measured once per machine, backbone and batch size, and remembered, so the same
    number of images gives the same runtime.
    """
    runtime = named_runtime(runtime)
    check_runtime(runtime, precision)
    if runtime is None:
        if images < _WORTH_CHOOSING or embedder.device.type != "cpu":
            runtime = "torch"
        else:
            runtime = fastest_runtime(embedder, batch, precision)
    return build_runtime(runtime, embedder, precision)


def runtime_at_hand(embedder: "Network", images: int) -> Runtime:
    """Return the runtime for some images that are computed only once, as ``Embedder.encode`` does.

    From ``WORTH_LOADING`` images on, it is the fastest one that an earlier command has measured and exported. So a
    later call may use another one than an earlier call, which ``choose_runtime`` never does.
    """
    if named_runtime() is None and WORTH_LOADING <= images < _WORTH_CHOOSING and embedder.device.type == "cpu":
        known = _remembered(embedder, BATCH, "fp32", runtimes_at_hand())
        if known is not None and (not RUNTIMES[known][0] or has_cached_graph(embedder)):
            return build_runtime(known, embedder)
    return choose_runtime(embedder, images)


def build_runtime(name: str, embedder: "Network", precision: str = "fp32") -> Runtime:
    """Return the named runtime in a precision; raise if it is not installed or can't compute in that precision."""
    check_runtime(name, precision)
    return _MAKERS[name](embedder, precision)


class TorchRuntime:
    """Eager torch, channels last, on the embedder's device."""

    def __init__(self, embedder: "Network", precision: str = "fp32") -> None:
        self.name = "torch" if precision == "fp32" else f"torch-{precision}"
        self.embedder = embedder.eval()
        self.reduced = precision == "bf16"

    @torch.inference_mode()
    def compute(self, images: np.ndarray) -> np.ndarray:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels)."""
        device = self.embedder.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.reduced):
            return self.run(torch.from_numpy(images).to(device)).float().cpu().numpy()

    def run(self, images: torch.Tensor) -> torch.Tensor:
        """Map images to features as tensors."""
        return self.embedder.features(images)


class ContiguousRuntime(TorchRuntime):
    """Eager torch in its default layout, faster for some networks and small batches. It holds a copy of the weights."""

    def __init__(self, embedder: "Network", precision: str = "fp32") -> None:
        copy = deepcopy(embedder)
        super().__init__(copy.to(memory_format=torch.contiguous_format), precision)  # pyright: ignore[reportCallIssue]
        self.name = self.name.replace("torch", "torch-contiguous")

    def run(self, images: torch.Tensor) -> torch.Tensor:
        """Map images to features as tensors."""
        return self.embedder.pool(self.embedder.backbone(images))


class CompiledRuntime(TorchRuntime):
    """``torch.compile``; it needs a C++ compiler and takes a minute or more at the first batch."""

    def __init__(self, embedder: "Network", precision: str = "fp32") -> None:
        super().__init__(embedder, precision)
        self.name = self.name.replace("torch", "compiled")
        self.compiled = torch.compile(embedder.features, dynamic=True)

    def run(self, images: torch.Tensor) -> torch.Tensor:
        """Map images to features as tensors."""
        return self.compiled(images)


class OnnxRuntime:
    """onnxruntime on the CPU, running the graph in the cache."""

    name = "onnxruntime"

    def __init__(self, embedder: "Network", precision: str = "fp32") -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        path = cached_graph(embedder)
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def compute(self, images: np.ndarray) -> np.ndarray:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels)."""
        return np.asarray(self.session.run(None, {"images": images})[0])


class OpenVinoRuntime:
    """OpenVINO on the CPU, running the same graph; by default it would use less precision than float32."""

    def __init__(self, embedder: "Network", precision: str = "fp32") -> None:
        import openvino

        self.name = "openvino" if precision == "fp32" else f"openvino-{precision}"
        settings = {
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision],
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "NUM_STREAMS": 1,
        }
        self.request = openvino.Core().compile_model(cached_graph(embedder), "CPU", settings).create_infer_request()

    def compute(self, images: np.ndarray) -> np.ndarray:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels)."""
        return np.array(self.request.infer({0: np.ascontiguousarray(images)})[0], np.float32)


_MAKERS: dict[str, Callable[..., Any]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVinoRuntime,
    "torch": TorchRuntime,
    "torch-contiguous": ContiguousRuntime,
    "compiled": CompiledRuntime,
}


# The fastest runtime on this machine, measured once for a backbone, input and batch size, and remembered.

_MOST_IMAGES = 16  # per batch in the measurement
_ROUNDS = 3
_MOST_SECONDS = 6.0  # per runtime: a slow one gets fewer rounds
_MARGIN = 0.9  # a later runtime must take less than this share of an earlier one's time, or noise would decide


def fastest_runtime(embedder: "Network", batch: int, precision: str = "fp32") -> str:
    """Return the name of the fastest available runtime: the remembered one, or else by measuring for some seconds."""
    names = runtimes_at_hand(precision)
    if len(names) == 1:
        return names[0]
    known = _remembered(embedder, batch, precision, names)
    if known is None:
        seconds = measure_runtimes(embedder, batch, precision, names)
        key = _key(embedder, batch, precision, names)
        choice = {"engine": choose(seconds), "seconds_an_image": seconds, "measured_for": key}
        path = _memory(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        create_text(path, json.dumps(choice, indent=2) + "\n")  # if another process was first, keep its choice
        known = _remembered(embedder, batch, precision, names) or choice["engine"]
    return known


def _remembered(embedder: "Network", batch: int, precision: str, names: list[str]) -> str | None:
    """Return the runtime that was measured to be the fastest, or None if none was measured yet."""
    path = _memory(_key(embedder, batch, precision, names))
    return json.loads(path.read_text(encoding="utf-8"))["engine"] if path.is_file() else None


def _memory(key: dict[str, Any]) -> Path:
    return cache_folder() / "engines" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.json"


def choose(seconds: dict[str, float]) -> str:
    """Return the first runtime that no later one clearly beats."""
    best, *others = seconds
    for name in others:
        if seconds[name] < _MARGIN * seconds[best]:
            best = name
    return best


def measure_runtimes(embedder: "Network", batch: int, precision: str, names: list[str]) -> dict[str, float]:
    """Return each runtime's median seconds per image, not counting the first batch."""
    count, size = min(batch, _MOST_IMAGES), embedder.preprocessing.size
    images = np.random.default_rng(0).normal(size=(count, 3, size, size)).astype(np.float32)
    seconds: dict[str, float] = {}
    for name in names:
        runtime = build_runtime(name, embedder, precision)
        runtime.compute(images[:1])
        times: list[float] = []
        while len(times) < _ROUNDS and sum(times) < _MOST_SECONDS:
            start = time.perf_counter()
            runtime.compute(images)
            times.append(time.perf_counter() - start)
        seconds[name] = statistics.median(times) / count
    return seconds


def _key(embedder: "Network", batch: int, precision: str, names: list[str]) -> dict[str, Any]:
    architecture = {k: v for k, v in embedder.architecture.items() if k in ("backbone", "pooling", "config", "stages")}
    return {
        "machine": [platform.machine(), _processor(), os.cpu_count(), torch.get_num_threads()],
        "model": architecture,
        "size": embedder.preprocessing.size,
        "batch": batch,
        "precision": precision,
        "engines": {name: _version(name) for name in names},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _version(runtime: str) -> str:
    try:
        return version("torch" if runtime.startswith("torch") else runtime)
    except PackageNotFoundError:
        return ""
