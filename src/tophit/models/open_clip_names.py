"""What ``open_clip/NAME`` stands for: an architecture with weights, a folder, or a repository of the hub.

- ``ViT-B-32:laion2b_s34b_b79k``: an architecture that open_clip knows, with weights it knows by that tag;
- ``ViT-B-32:weights.safetensors``: the same with a file;
- ``local-dir:FOLDER`` and ``hf-hub:USER/NAME``: a folder or a repository with ``open_clip_config.json`` and weights.
"""

import difflib
import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tophit.errors import TophitError, UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import import_library, three, unreachable
from tophit.models.description import without_hub
from tophit.models.weights import offline

_FOLDER, _HUB = "local-dir:", "hf-hub:"
_DESCRIPTION = "open_clip_config.json"
_MOST_NAMES = 6


def open_clip(backbone: str) -> Any:
    """Import open_clip for a backbone, or say how to install it."""
    return import_library("open_clip", backbone, "'tophit[open-clip]'")


@dataclass(frozen=True)
class OpenClipModel:
    """A model of open_clip: its name, the weights that belong to it, and what describes it before they are loaded."""

    name: str  # as open_clip takes it
    weights: str | None  # a tag or a file; None in a folder, which has its own, and if none were named
    config: dict[str, Any]
    pictures: dict[str, Any]  # what it says of its preprocessing

    @property
    def full_name(self) -> str:
        """The backbone's name."""
        return f"open_clip/{self.name}" + (f":{self.weights}" if self.weights else "")

    def load(self) -> Any:
        """Return open_clip's model with its weights."""
        library = open_clip(self.full_name)
        if self.weights is None and not _is_place(self.name):
            tags = library.list_pretrained_tags_by_model(self.name)
            raise UsageError(
                f"'{self.full_name}' names no weights: add a tag of open_clip or a file, {self.full_name}:WEIGHTS"
                + (f", such as {_some(tags)}." if tags else ".")
            )
        quick = bool(self.config.get("quick_gelu"))
        try:
            with _quietly():
                return library.create_model_from_pretrained(
                    self.name,
                    pretrained=self.weights,
                    force_quick_gelu=quick,
                    return_transform=False,
                )
        except (OSError, RuntimeError, ValueError, pickle.UnpicklingError, SafetensorError) as error:
            if self.weights is not None and Path(self.weights).is_file():
                raise TophitError(
                    f"The weights in '{self.weights}' do not fit 'open_clip/{self.name}': {_first_lines(error)}"
                ) from error
            raise unreachable(self.full_name, error, self._advice(library)) from error

    def _advice(self, library: Any) -> str:
        """Return how to use the same weights without a network: a file does not tell its activation."""
        if _is_place(self.name):
            return f"download the repository on a machine that can, and use its folder as open_clip/{_FOLDER}FOLDER."
        quick = f"{self.name}-quickgelu"
        name = quick if self.config.get("quick_gelu") and quick in library.list_models() else self.name
        return f"download the file on a machine that can, and use it as open_clip/{name}:FILE."

    def tokenizer(self) -> Any:
        """Return open_clip's tokenizer for it."""
        try:
            with _quietly():
                return open_clip(self.full_name).get_tokenizer(self.name)
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            advice = "download the tokenizer that its configuration names as well."
            raise unreachable(self.full_name, error, advice) from error

    def preprocessing(self) -> Preprocessing:
        """Return the pictures that it expects, as open_clip's own transform makes them, but always bicubic."""
        size, mode = self.config["vision_cfg"].get("image_size", 224), self.pictures.get("resize_mode", "shortest")
        if isinstance(size, list | tuple) and len(set(size)) == 1:
            size = size[0]
        if not isinstance(size, int) or mode not in ("shortest", "squash"):
            raise UsageError(
                f"'{self.full_name}' takes pictures of {size} resized by '{mode}'; Tophit has squares, resized by "
                "'shortest' or 'squash'."
            )
        constants = open_clip(self.full_name)
        mean, std = (
            self.pictures.get(name) or getattr(constants, f"OPENAI_DATASET_{name.upper()}") for name in ("mean", "std")
        )
        return Preprocessing(size, 1.0, three(mean), three(std), squash=mode == "squash")


def find_model(name: str) -> OpenClipModel:
    """Return what a name stands for; raise if open_clip does not know it."""
    library = open_clip(f"open_clip/{name}")
    if _is_place(name):
        described = _described(library, name)
        return OpenClipModel(name, None, described["model_cfg"], described.get("preprocess_cfg") or {})
    model, _, weights = name.partition(":")
    model = model.replace("/", "-")  # ViT-B/32, as papers write it
    config = library.get_model_config(model)
    if config is None:
        known = library.list_models()
        near = _some(difflib.get_close_matches(model, known, _MOST_NAMES) or known)
        raise UsageError(f"open_clip has no model '{model}'. It has {near}.")
    tags = library.list_pretrained_tags_by_model(model)
    if library.is_pretrained_cfg(model, weights):
        pictures = library.get_pretrained_cfg(model, weights)
        if pictures.get("quick_gelu"):  # open_clip only warns, and computes other features
            config["quick_gelu"] = True
    else:
        if weights and not Path(weights).is_file():
            raise UsageError(
                f"open_clip has no weights '{weights}' for '{model}', and there is no such file."
                + (f" It has {_some(tags)}." if tags else "")
            )
        pictures = _common([library.get_pretrained_cfg(model, tag) for tag in tags])
    return OpenClipModel(model, weights or None, config, pictures)


def _described(library: Any, name: str) -> dict[str, Any]:
    """Read the description of a model in a folder or a repository."""
    try:
        if name.startswith(_FOLDER):
            path = Path(name.removeprefix(_FOLDER)) / _DESCRIPTION
        else:
            with _quietly():
                path = Path(library.pretrained.download_pretrained_from_hf(name.removeprefix(_HUB), _DESCRIPTION))
        found = json.loads(path.read_text(encoding="utf-8"))
        if not {"embed_dim", "vision_cfg", "text_cfg"} <= set(found["model_cfg"]):
            raise ValueError("model_cfg lacks embed_dim, vision_cfg or text_cfg")
    except (OSError, ImportError) as error:
        advice = f"download the repository, and use its folder as open_clip/{_FOLDER}FOLDER."
        raise unreachable(f"open_clip/{name}", error, advice) from error
    except (ValueError, KeyError, TypeError) as error:
        raise TophitError(f"{_DESCRIPTION} of '{name}' does not describe a model of open_clip: {error!r}.") from error
    return found


def _common(tags: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all weights of an architecture say of their pictures: a file says nothing itself."""
    names = ("mean", "std", "resize_mode")
    return {name: tags[0][name] for name in names if tags and all(tag.get(name) == tags[0].get(name) for tag in tags)}


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep open_clip from the network if downloads are turned off, and from logging what the errors here say."""
    root = logging.getLogger()  # open_clip logs to it directly

    def drop(_: logging.LogRecord) -> bool:
        return False

    root.addFilter(drop)
    try:
        if offline():
            with without_hub():
                yield
        else:
            yield
    finally:
        root.removeFilter(drop)


def _is_place(name: str) -> bool:
    return name.startswith((_FOLDER, _HUB))


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else "")


def _first_lines(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
