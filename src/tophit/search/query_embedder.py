"""The embedder of an index as one search needs it: without torch, whose import takes longer than the answer.

When an index is made by a network that was exported for onnxruntime anyway, the graph of its features and the head's
weights are kept beside the index, after a check against torch (``keep_query_graph``). A query's image is then embedded
by them; everything else, and an index without them, loads the embedder as usual, when it is first needed.
"""

import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tophit.errors import TophitError
from tophit.files import replace_file, write_json
from tophit.images.decode import ImageInput, read_image
from tophit.images.preprocessing import Preprocessing
from tophit.models.text_facts import check_takes_words

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

FOLDER = "queries"  # in the folder of a version
_GRAPH, _HEAD, _ABOUT = "features.onnx", "head.npz", "queries.json"
_FORMAT = 1
_TOLERANCE = 1e-4
_EPSILON = 1e-5  # of torch's LayerNorm
_MOST = 32  # images; for more, the embedder itself chooses its runtime


class QueryEmbedder:
    """Stands for the embedder of a version: what is not here is asked of ``whole``, which imports torch."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.expected = folder, fingerprint
        self.kept = _kept(folder / FOLDER, fingerprint)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    @cached_property
    def whole(self) -> "Embedder":
        """The embedder itself; one that did not make the index is refused."""
        return load_checked(self.folder, self.expected)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """What the network expects of images."""
        fields = (self.kept or {}).get("preprocessing")
        return self.whole.preprocessing if fields is None else Preprocessing.from_json(fields)

    def encode(self, images: Sequence[ImageInput]) -> np.ndarray:
        """Return unit vectors (N, dim), float32, as ``Embedder.encode`` does, to within 1e-4 of each number."""
        if self.kept is None or not 0 < len(images) <= _MOST:
            return self.whole.encode(images)
        side = self.preprocessing.least_side
        return self._graph(np.stack([self.preprocessing(read_image(each, None, side)) for each in images]))

    def encode_text(self, texts: str | Sequence[str]) -> np.ndarray:
        """Return unit vectors (N, dim), float32, of texts; a model that takes none is refused before it is loaded."""
        check_takes_words(self.folder / "embedder")
        return self.whole.encode_text(texts)

    @cached_property
    def _graph(self) -> "_Graph":
        assert self.kept is not None
        return _Graph(self.folder / FOLDER, self.kept["layer_norm"])


class _Graph:
    """Preprocessed images (N, 3, H, W) to unit vectors (N, dim): the features by onnxruntime, the head by NumPy."""

    def __init__(self, folder: Path, layer_norm: bool) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(folder / _GRAPH, options, providers=["CPUExecutionProvider"])
        self.layer_norm = layer_norm
        with np.load(folder / _HEAD) as arrays:
            self.head = dict(arrays)

    def __call__(self, images: np.ndarray) -> np.ndarray:
        values = np.asarray(self.session.run(None, {"images": images})[0])
        if self.layer_norm:
            centred = values - values.mean(axis=1, keepdims=True)
            values = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + _EPSILON)
        if "weight" in self.head:
            values = values @ self.head["weight"].T + self.head["bias"]
        return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def load_checked(folder: Path, fingerprint: str) -> "Embedder":
    """Load the embedder of a version; raise if it is not the one that made the index."""
    from tophit.models.embedder import load

    embedder = load(folder / "embedder")
    if embedder.fingerprint() != fingerprint:
        raise TophitError(f"The embedder in {folder} is not the one that made the index; build the index again.")
    return embedder


def keep_query_graph(embedder: "Embedder", folder: Path) -> bool:
    """Keep what a query needs in the folder of a version, if the network was exported; return whether it is there.

    Nothing is exported for this: from 500 images on, indexing exports the network to find the fastest runtime.
    """
    from tophit.models.onnx_export import cached_graph, has_cached_graph

    if _kept(folder / FOLDER, fingerprint := embedder.fingerprint()) is not None:
        return True
    if importlib.util.find_spec("onnxruntime") is None or not has_cached_graph(embedder):
        return False
    target, made = folder / FOLDER, folder / f".{FOLDER}.{os.getpid()}"
    made.mkdir(exist_ok=True)
    try:
        with replace_file(made / _GRAPH) as temporary:
            shutil.copyfile(cached_graph(embedder), temporary)
        layer_norm = bool(embedder.architecture.get("layer_norm"))
        np.savez(made / _HEAD, **_head_arrays(embedder, layer_norm))  # pyright: ignore[reportArgumentType]
        if not _agrees(embedder, _Graph(made, layer_norm)):
            return False
        about = {
            "format": _FORMAT,
            "fingerprint": fingerprint,
            "preprocessing": embedder.preprocessing.to_json(),
            "layer_norm": layer_norm,
            "files": {name: _digest(made / name) for name in (_GRAPH, _HEAD)},
        }
        write_json(made / _ABOUT, about)
        shutil.rmtree(target, ignore_errors=True)
        made.replace(target)
        return True
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _head_arrays(embedder: "Embedder", layer_norm: bool) -> dict[str, np.ndarray]:
    head: Any = embedder.head[1] if layer_norm else embedder.head  # type: ignore[index]
    found = {name: getattr(head, name, None) for name in ("weight", "bias")}
    return {name: value.detach().cpu().numpy() for name, value in found.items() if value is not None}


def _agrees(embedder: "Embedder", graph: _Graph) -> bool:
    """Say whether both give the same vectors of two noisy pictures."""
    noise = np.random.default_rng(0).integers(0, 256, (2, 40, 40, 3), np.uint8)
    images = np.stack([embedder.preprocessing(picture) for picture in noise])
    return bool(np.abs(graph(images) - embedder.encode(list(noise))).max() <= _TOLERANCE)


def _kept(folder: Path, fingerprint: str) -> dict[str, Any] | None:
    """Return what is known of the files kept for queries; None if they are not there, damaged, or of another model."""
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        fits = about["format"] == _FORMAT and about["fingerprint"] == fingerprint
        whole = fits and all(_digest(folder / name) == digest for name, digest in about["files"].items())
        return about if whole and importlib.util.find_spec("onnxruntime") is not None else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
