"""The text tower of a model that was trained on images with their texts.

It is frozen. It is kept beside an embedder, in the folder ``text``: weights, configuration and tokenizer, so that words
can be searched for without a hub. Each library whose models have one has a class for it.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional

from tophit.errors import TophitError, UsageError
from tophit.files import read_small_json, replace_file, write_json
from tophit.models.description import without_hub
from tophit.models.text_facts import FAMILIES, OPEN_CLIP, TOWER
from tophit.models.weights import read_weights

_WEIGHTS = "weights.safetensors"
_BATCH = 64
_LONGEST = 10_000  # characters of a text; a tower reads about 64 words


class TextTower(ABC):
    """Texts to unit vectors in the space that images share.

    ``config`` tells how to build it again; its ``model_type`` tells the library.
    """

    def __init__(self, model: Any, tokenizer: Any, config: dict[str, Any]) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.config = config

    @torch.inference_mode()
    def features(self, texts: Sequence[str]) -> torch.Tensor:
        """Return unit vectors (N, channels) of texts; what is too long for the tower is cut off."""
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        return torch.cat([functional.normalize(self._features(batch).float(), dim=1) for batch in batches])

    @abstractmethod
    def _features(self, texts: Sequence[str]) -> torch.Tensor:
        """Return the library's own vectors of texts."""

    @abstractmethod
    def _save_tokenizer(self, folder: Path) -> None:
        """Write what :meth:`_saved_tokenizer` needs besides the configuration."""

    @staticmethod
    @abstractmethod
    def _empty_model(config: dict[str, Any], folder: Path) -> Any:
        """Return the network that a configuration describes, without the image tower, before weights are loaded."""

    @staticmethod
    @abstractmethod
    def _saved_tokenizer(config: dict[str, Any], folder: Path) -> Any:
        """Return the tokenizer that a folder holds, running none of the folder's code."""

    def save(self, folder: Path) -> None:
        """Write it into a folder, unless it is there already."""
        from tophit.models.embedder import digest

        state = {name: value.detach().cpu().contiguous() for name, value in self.model.state_dict().items()}
        mark = digest(state, self.config)
        if (folder / TOWER).is_file() and read_small_json(folder / TOWER).get("digest") == mark:
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOWER).unlink(missing_ok=True)  # written last: a folder without it is not complete
        with replace_file(folder / _WEIGHTS) as temporary:
            save_file(state, temporary)
        self._save_tokenizer(folder)
        write_json(folder / TOWER, {"config": self.config, "digest": mark})

    @staticmethod
    def load(folder: Path) -> "TextTower":
        """Load what :meth:`save` wrote, without a network."""
        try:
            config = read_small_json(folder / TOWER)["config"]
            kind = _kind(config["model_type"])
            state = read_weights(str(folder / _WEIGHTS))
            with without_hub():
                with torch.device("meta"):
                    planned = kind._empty_model(config, folder)
                if sum(each.numel() for each in planned.parameters()) > sum(each.numel() for each in state.values()):
                    raise ValueError("its configuration has more weights than its file")
                model = kind._empty_model(config, folder)
                tokenizer = kind._saved_tokenizer(config, folder)
            model.load_state_dict(state)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, AssertionError) as error:
            raise TophitError(f"{folder} does not hold a text tower: {error}") from error
        return kind(model, tokenizer, config)


def _kind(name: str) -> type[TextTower]:
    if name == OPEN_CLIP:
        from tophit.models.open_clip_text import OpenClipTextTower

        return OpenClipTextTower
    if name in FAMILIES:
        from tophit.models.hf_text import HFTextTower

        return HFTextTower
    raise ValueError(f"there is no text tower of the kind {name!r}")


def copy_tower(source: Path, target: Path) -> None:
    """Copy the files of a text tower."""
    if source.resolve() != target.resolve():
        shutil.copytree(source, target, dirs_exist_ok=True)


def check_texts(texts: Any) -> list[str]:
    """Return texts to search for as a list; raise if one is no text, empty, or far too long."""
    found = [texts] if isinstance(texts, str) else list(texts)
    for text in found:
        if not isinstance(text, str):
            raise TypeError(f"a text must be a string, not {type(text).__name__}")
        if not text.strip():
            raise UsageError("A text to search for must have at least one word.")
        if len(text) > _LONGEST:
            raise UsageError(f"A text of {len(text):,} characters is too long; write at most {_LONGEST:,}.")
    return found
