"""The embedder: backbone, pooling and head in one module, from images to unit vectors."""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn import functional

from tophit.errors import TophitError, UsageError
from tophit.files import replace_file, write_json
from tophit.images.decode import BadImage, Box, ImageInput
from tophit.images.preprocessing import VIEWS_VERSION, Preprocessing
from tophit.models.backbones import Backbone, backbone_spec, build_backbone
from tophit.models.description import (
    FORMAT,
    check_network_free,
    check_size,
    not_shorter,
    read_description,
    without_hub,
)
from tophit.models.feature_cache import features_by_block
from tophit.models.learned import LearnedClasses
from tophit.models.named import DESCRIPTION as _DESCRIPTION
from tophit.models.named import embedder_folder, renamed
from tophit.models.pooling import as_map, build_pooling
from tophit.models.runtimes import BATCH, WORTH_LOADING, Runtime, features_of, runtime_at_hand
from tophit.models.text_facts import BACKBONES, JOINT, has_tower, is_tower, no_words
from tophit.models.text_facts import FOLDER as TEXT_FOLDER
from tophit.models.text_tower import TextTower, check_texts, copy_tower
from tophit.models.weights import State, read_weights
from tophit.progress import Progress

_WEIGHTS = "weights.safetensors"
Trained = Literal["nothing", "head", "last", "all"]
_ADDED: dict[str, Any] = {"learn_p": False, "levels": 3, "layer_norm": False, "config": None}  # defaults if absent


class _Picture(NamedTuple):
    """An image that is not a row of a manifest."""

    path: ImageInput
    box: Box | None = None


class Embedder(nn.Module):
    """Images to unit vectors: ``head(pooling(backbone(x)))``, normalised.

    ``architecture`` holds what is needed to rebuild it: backbone, pooling, p, dim, and what differs from ``_ADDED``.
    ``dim=None`` means no linear layer: the vector is the pooled feature itself. With ``layer_norm`` the pooled feature
    is first normalised over its channels, without parameters (as ProxyNCA++ does). ``trained`` says whether only the
    head, the last stages too, or the whole embedder was trained.
    """

    def __init__(
        self,
        backbone: Backbone,
        architecture: dict[str, Any],
        preprocessing: Preprocessing,
        trained: Trained = "nothing",
    ) -> None:
        super().__init__()
        full = _ADDED | architecture
        if full["pooling"] == "cls" and not backbone.has_cls:
            raise UsageError(
                f"embedder.pooling: cls needs a class token, which '{full['backbone']}' does not have; use average."
            )
        self.backbone = backbone
        self.architecture = architecture
        joint = full["pooling"] == JOINT  # the backbone's own
        self.pooling = (
            nn.Identity() if joint else build_pooling(full["pooling"], full["p"], full["learn_p"], full["levels"])
        )
        self.head = _build_head(features_length(backbone, full["pooling"]), full["dim"], full["layer_norm"])
        self.preprocessing = preprocessing
        self.trained: Trained = trained
        self.learned = LearnedClasses()
        self.folder: Path | None = None  # where it was loaded from
        self.find_text: Callable[[], TextTower] | None = None  # where the text tower comes from, once it is needed
        self._weights_seen: int | None = None  # of the backbone's weights, when encode was last called
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]  # twice as fast as the default on CPUs

    @property
    def dim(self) -> int:
        """The length of the vectors."""
        return self.architecture["dim"] or self.channels

    @property
    def channels(self) -> int:
        """The length of pooled features."""
        return features_length(self.backbone, self.architecture["pooling"])

    @property
    def takes_words(self) -> bool:
        """Whether words can be embedded too: its backbone's text tower is known, and images are in its space."""
        return self.find_text is not None

    @cached_property
    def text(self) -> "TextTower":
        """The text tower, loaded when it is first needed."""
        if self.find_text is None:
            raise no_words(self.architecture)
        return self.find_text()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next((weights.device for weights in self.parameters()), torch.device("cpu"))

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Map preprocessed images (N, 3, H, W) to pooled features (N, channels)."""
        return self.pool(self.backbone(images.contiguous(memory_format=torch.channels_last)))

    def pool(self, x: torch.Tensor) -> torch.Tensor:
        """Map the backbone's feature map or tokens to pooled features (N, channels)."""
        if self.architecture["pooling"] == JOINT:
            return self.backbone.joint(x)
        if self.architecture["pooling"] != "cls":
            x = as_map(x, self.backbone.prefix_tokens)
        return self.pooling(x)

    def embed_features(self, features: torch.Tensor) -> torch.Tensor:
        """Map pooled features (N, channels) to unit vectors (N, dim)."""
        return functional.normalize(self.head(features), dim=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map preprocessed images (N, 3, H, W) to unit vectors (N, dim)."""
        return self.embed_features(self.features(images))

    def encode(
        self,
        images: ImageInput | Sequence[ImageInput],
        batch_size: int = BATCH,
        progress: Progress | None = None,
        runtime: Runtime | None = None,
    ) -> np.ndarray:
        """Return unit vectors (N, dim), float32, of paths, Pillow images or arrays, in their order.

        Arrays are (H, W), (H, W, 3) or (H, W, 4); uint8, uint16, or floats from 0 to 1. A single image gives (1, dim).
        An image that can't be read raises ``BadImage`` with its path. If ``runtime`` is not given, it is chosen by the
        number of images, and from 32 image files on, features are kept as ``tophit embed`` keeps them.
        """
        items = [images] if isinstance(images, str | Path | Image.Image | np.ndarray) else list(images)
        if not items:
            return np.empty((0, self.dim), np.float32)
        wrong = next((x for x in items if not isinstance(x, str | Path | Image.Image | np.ndarray)), None)
        if wrong is not None:
            raise TypeError(f"an image must be a path, a Pillow image or an array, not {type(wrong).__name__}")
        pictures = [_Picture(each) for each in items]
        learns = self._is_learning()
        if runtime is None and len(items) >= WORTH_LOADING and not learns:
            blocks = [range(i, min(i + batch_size, len(items))) for i in range(0, len(items), batch_size)]
            runtime = runtime_at_hand(self, len(items))
            found = features_by_block(runtime, self, pictures, blocks, batch_size, progress=progress)
        else:
            runtime = runtime or runtime_at_hand(self, len(items))
            found = features_of(runtime, self, pictures, batch_size, progress=progress)
        vectors: list[np.ndarray] = []
        for batch in found:
            if batch.bad:
                raise BadImage(next(iter(batch.bad.values())))
            vectors.append(self.embed_arrays(batch.values))
        return np.concatenate(vectors)

    def _is_learning(self) -> bool:
        """Return whether the backbone changed since the last call: nobody would ask for its present features again."""
        weights = [each for each in self.backbone.parameters() if not each.is_inference()]  # which has no version
        before, self._weights_seen = self._weights_seen, sum(each._version for each in weights)
        return before is not None and before != self._weights_seen

    def encode_text(self, texts: str | Sequence[str]) -> np.ndarray:
        """Return unit vectors (N, dim), float32, of texts, in the space of the images.

        The head, if there is one, is applied to texts as to images. It needs a backbone with a text tower
        (``takes_words``).
        """
        found = check_texts(texts)
        return self.embed_arrays(self.text.features(found).numpy()) if found else np.empty((0, self.dim), np.float32)

    @torch.inference_mode()
    def embed_arrays(self, features: np.ndarray) -> np.ndarray:
        """Map pooled features (N, channels) to unit vectors (N, dim), as arrays."""
        self.eval()
        return self.embed_features(torch.from_numpy(features).to(self.device)).cpu().numpy()

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as plain values."""
        return {
            "format": FORMAT,
            "architecture": self.architecture,
            "preprocessing": self.preprocessing.to_json(),
            "trained": self.trained,
        }

    def save(self, folder: str | Path) -> None:
        """Save the embedder as a folder: safetensors weights and one JSON. Adapters are merged into the weights."""
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        from tophit.models.lora import has_adapters, merged_state

        own = merged_state(self) if has_adapters(self.backbone) else self.state_dict()
        state = {name: value.detach().cpu().contiguous() for name, value in own.items()}
        with replace_file(folder / _WEIGHTS) as temporary:
            try:
                save_file(state, temporary)
            except SafetensorError as error:
                raise _system_error(error) from error
        self._save_text(folder / TEXT_FOLDER)
        self.learned.save(folder)
        write_json(folder / _DESCRIPTION, self.describe())

    def _save_text(self, folder: Path) -> None:
        """Save the text tower, if there is one; of a loaded embedder its files are copied."""
        if self.find_text is None:
            return
        kept = None if self.folder is None else self.folder / TEXT_FOLDER
        if kept is not None and is_tower(kept):
            copy_tower(kept, folder)
            return
        try:
            self.text.save(folder)
        except TophitError as error:  # images alone are worth saving
            warnings.warn(f"Saved without its text tower, so it will take no words: {error}", stacklevel=3)

    def shortened(self, dim: int) -> "Embedder":
        """Return an embedder of the first ``dim`` numbers of each vector, normalised again; the rest is shared.

        Learned with ``loss.prefixes``, these lose little and take less memory and time to search.
        """
        if self.architecture["dim"] is None:
            raise UsageError(
                f"The vectors of '{self.architecture['backbone']}' are its features, without a head that could be "
                "shortened; train one with loss.prefixes."
            )
        if not 1 <= dim <= self.dim:
            raise not_shorter(dim, self.dim)
        made = Embedder(self.backbone, {**self.architecture, "dim": dim}, self.preprocessing, self.trained)
        made.pooling, made.find_text = self.pooling, None if self.find_text is None else lambda: self.text
        made.learned = self.learned
        own, whole = made.head.state_dict(), self.head.state_dict()
        made.head.load_state_dict({name: whole[name][: len(value)] for name, value in own.items()})
        return made.to(self.device).eval()

    def push_to_hub(self, name: str, *, private: bool = False, message: str | None = None) -> str:
        """Upload it to ``user/name`` on the Hugging Face Hub, with a model card; return what ``tophit.load`` takes.

        Args:
            name: The repository, which is made if there is none.
            private: Whether a new repository is private.
            message: The message of the commit.

        """
        from tophit.models.hub import push_embedder

        return push_embedder(self, name, private=private, message=message)

    def fingerprint(self) -> str:
        """Return a digest of the weights and the preprocessing: equal fingerprints give equal vectors."""
        return digest(self.state_dict(), [self.architecture, self.preprocessing.to_json()])

    def feature_fingerprint(self) -> str:
        """Return a digest of everything that determines the pooled features: all but the head."""
        state = {name: value for name, value in self.state_dict().items() if not name.startswith("head.")}
        architecture = {name: value for name, value in self.architecture.items() if name not in ("dim", "layer_norm")}
        return digest(state, [architecture, self.preprocessing.to_json(), VIEWS_VERSION])


def _system_error(error: SafetensorError) -> Exception:
    """Return the system's error that safetensors met, such as a full disk, which it tells only in words."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number.group(1)), os.strerror(int(number.group(1)))) if number else error


def digest(state: dict[str, torch.Tensor], description: Any) -> str:
    """Return a short SHA-256 of tensors and a description."""
    summary = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name, value in sorted(state.items()):
        summary.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        summary.update(value.detach().cpu().contiguous().numpy().tobytes())
    return summary.hexdigest()[:32]


def _build_head(channels: int, dim: int | None, layer_norm: bool) -> nn.Module:
    linear = nn.Identity() if dim is None else nn.Linear(channels, dim)
    return nn.Sequential(nn.LayerNorm(channels, elementwise_affine=False), linear) if layer_norm else linear


def build_embedder(
    backbone: str = "efficientnet-lite0",
    weights: str = "pretrained",
    pooling: str | None = "average",
    p: float = 3.0,
    dim: int | None = None,
    size: int | None = None,
    crop: float | None = None,
    squash: bool | None = False,
    *,
    learn_p: bool = False,
    levels: int = 3,
    layer_norm: bool = False,
) -> Embedder:
    """Build an embedder; the head's weights are random, from torch's seed.

    ``size`` and ``crop`` default to the backbone's. ``pooling=None`` means the space of the text tower if there is one,
    else the class token if there is one, else the average.
    """
    spec = backbone_spec(backbone)
    preprocessing = spec.preprocessing if squash is None else replace(spec.preprocessing, squash=squash)
    if size is not None:
        preprocessing = replace(preprocessing, size=size)
    if crop is not None:
        preprocessing = replace(preprocessing, crop=crop)
    network = build_backbone(backbone, weights, spec)
    pooling = pooling or (JOINT if network.joint_channels else "cls" if network.has_cls else "average")
    added = {"learn_p": learn_p, "levels": levels, "layer_norm": layer_norm, "config": network.config}
    architecture = {"backbone": backbone, "pooling": pooling, "p": p, "dim": dim}
    architecture |= {name: value for name, value in added.items() if value != _ADDED[name]}
    made = Embedder(network, architecture, preprocessing)
    made.find_text = spec.text if pooling == JOINT and weights == "pretrained" else None
    return made


def features_length(backbone: Backbone, pooling: str) -> int:
    """Return the length of a backbone's features after pooling."""
    if pooling != JOINT:
        return backbone.channels
    if backbone.joint_channels is None:
        raise UsageError(f"embedder.pooling: joint needs a backbone with a text tower: {BACKBONES}.")
    return backbone.joint_channels


def load(name: str | Path) -> Embedder:
    """Load an embedder from a run, an embedder's folder, ``hf:user/name``, or a backbone's name (without a head)."""
    if str(name).startswith("hf:"):
        from tophit.models.hub import download_embedder

        name = download_embedder(str(name))
    folder = embedder_folder(name)
    if folder is not None:
        return _load_folder(folder)
    spec = backbone_spec(str(name))
    return build_embedder(str(name), "pretrained" if spec.pretrained else "random", None, squash=None).eval()


def saved_weights(folder: Path) -> set[str]:
    """Return the names of the backbone's weights in an embedder's folder; none if there is no embedder."""
    path = folder / _WEIGHTS
    if not path.is_file():
        return set()
    with safe_open(path, "pt") as file:
        return _backbone_weights(file.keys())


def _backbone_weights(names: Iterable[str]) -> set[str]:
    return {name.removeprefix("backbone.") for name in names if name.startswith("backbone.")}


def _saved_backbone(name: str, config: dict[str, Any] | None, state: State) -> Backbone:
    """Build the network that a saved embedder names: not from the network, and not larger than its weights."""
    check_network_free(name, config)
    with without_hub():
        spec = backbone_spec(name, config)
        if config is not None:
            with torch.device("meta"):
                planned = sum(each.numel() for each in spec.build().parameters())
            if planned > sum(each.numel() for each in state.values()):
                raise ValueError(f"its configuration has {planned:,} weights, more than its file")
        return build_backbone(name, "random", spec)


def _load_folder(folder: Path) -> Embedder:
    try:
        fields = read_description(folder / _DESCRIPTION)
        state = read_weights(str(folder / _WEIGHTS))
        architecture = _ADDED | fields["architecture"]
        name = renamed(architecture["backbone"], lambda: _backbone_weights(state))
        backbone = _saved_backbone(name, architecture["config"], state)
        with torch.device("meta"):
            channels = features_length(backbone, architecture["pooling"])
            check_size(_build_head(channels, architecture["dim"], architecture["layer_norm"]), state)
        preprocessing = Preprocessing.from_json(fields["preprocessing"])
        embedder = Embedder(backbone, fields["architecture"], preprocessing, fields["trained"])
        embedder.folder, embedder.learned = folder, LearnedClasses.read(folder)
        if has_tower(folder, architecture):
            embedder.find_text = lambda: TextTower.load(folder / TEXT_FOLDER)
    except (ValueError, KeyError, TypeError) as error:
        raise TophitError(f"{folder / _DESCRIPTION} does not describe an embedder: {error!r}.") from error
    try:
        embedder.load_state_dict(state)
    except RuntimeError as error:
        raise TophitError(f"{folder / _WEIGHTS} does not fit {folder / _DESCRIPTION}: {error}") from error
    return embedder.eval()
