"""The embedder as one ONNX file, checked against torch, with a description of the images it expects next to it."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tophit.errors import TophitError, UsageError
from tophit.files import replace_file, write_json
from tophit.images.preprocessing import Preprocessing
from tophit.models.embedder import Embedder
from tophit.models.named import check_onnx_file
from tophit.models.onnx_export import export_onnx
from tophit.models.running import export_installed, onnx_installed

TOLERANCE = 1e-4
_BATCHES = (1, 8)
_ROUNDS = 3


@dataclass(frozen=True)
class Exported:
    """The files written, and the results of the check; these are empty if onnxruntime is not installed.

    ``speeds`` are images per second by batch size, of torch and of onnxruntime.
    """

    graph: Path
    description: Path
    difference: float | None
    speeds: dict[int, tuple[float, float]]


def export_embedder(embedder: Embedder, path: str | Path, model: str = "") -> Exported:
    """Write the model, images to unit vectors, as ONNX with any batch size, and a JSON file of the same name beside it.

    If onnxruntime is installed, its vectors are first compared with torch's; a difference above ``TOLERANCE`` raises
    and leaves no file.
    """
    path = Path(path)
    check_onnx_file(path)
    if not export_installed():
        raise UsageError("The export needs packages that are not installed; install them: pip install 'tophit[onnx]'")
    path.parent.mkdir(parents=True, exist_ok=True)
    difference, speeds = None, {}
    with replace_file(path) as temporary:
        export_onnx(embedder.eval(), temporary, "vectors")
        if onnx_installed():
            difference, speeds = _compare(embedder, temporary)
            if not difference <= TOLERANCE:
                raise TophitError(
                    f"The model was not written: onnxruntime's vectors differ from torch's by {difference:.1e}."
                )
    description = path.with_suffix(".json")
    write_json(description, _describe(embedder, model))
    return Exported(path, description, difference, speeds)


def _describe(embedder: Embedder, model: str) -> dict[str, Any]:
    size = embedder.preprocessing.size
    return {
        "format": 1,
        "input": {"name": "images", "type": "float32", "shape": ["batch", 3, size, size]},
        "output": {"name": "vectors", "type": "float32", "shape": ["batch", embedder.dim], "unit_length": True},
        "preprocessing": embedder.preprocessing.to_json(),
        "resize": _resize(embedder.preprocessing),
        "fingerprint": embedder.fingerprint(),
        "model": model,
    }


def _resize(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return how a picture becomes the input, as ``Preprocessing`` does it: the filter, and the rule as a sentence."""
    size, crop = preprocessing.size, preprocessing.crop
    sides = f"{crop:g} of each side" if preprocessing.squash else f"a square of {crop:g} of the short side"
    order = preprocessing.channel_order
    return {
        "filter": "bicubic",
        "antialias": True,
        "rule": f"Turn the picture upright, put it over white, as 8-bit RGB. Cut out its centre, {sides}, rounded to "
        f"whole pixels. Resize that to {size}x{size} pixels. Divide by 255, subtract mean, divide by std; channels in "
        f"the order {order}.",
    }


def _compare(embedder: Embedder, graph: Path) -> tuple[float, dict[int, tuple[float, float]]]:
    """Return the largest difference in any element of a vector, and the speeds of torch and of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    noise = np.random.default_rng(0).integers(0, 256, (max(_BATCHES), 12, 12, 3), np.uint8)
    images = np.stack([embedder.preprocessing(Image.fromarray(picture)) for picture in noise])

    @torch.inference_mode()
    def by_torch(count: int) -> np.ndarray:
        return embedder(torch.from_numpy(images[:count]).to(embedder.device)).cpu().numpy()

    def by_onnxruntime(count: int) -> np.ndarray:
        return np.asarray(session.run(None, {"images": images[:count]})[0])

    difference = max(float(np.abs(by_torch(n) - by_onnxruntime(n)).max()) for n in _BATCHES)
    return difference, {n: (_speed(by_torch, n), _speed(by_onnxruntime, n)) for n in _BATCHES}


def _speed(run: Callable[[int], object], count: int) -> float:
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run(count)
        seconds.append(time.perf_counter() - start)
    return count / statistics.median(seconds)
