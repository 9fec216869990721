"""The text tower of a model that was trained on images with their texts: CLIP and SigLIP of transformers.

It is frozen. It is kept beside an embedder, in the folder ``text``: weights, configuration and tokenizer, so that words
can be searched for without a hub.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional

from tophit.errors import TophitError, UsageError
from tophit.files import read_small_json, replace_file, write_json
from tophit.models.backbones import import_library, unreachable
from tophit.models.description import without_hub
from tophit.models.pooling import JOINT
from tophit.models.weights import offline, read_weights

FOLDER = "text"
FAMILIES = ("clip", "siglip")
"""The kinds of configurations whose models have both towers in a form that is read here."""
BACKBONES = "hf/NAME of the CLIP and SigLIP families, such as hf/openai/clip-vit-base-patch32"
_WEIGHTS, _DESCRIPTION = "weights.safetensors", "tower.json"
_BATCH = 64
_LONGEST = 10_000  # characters of a text; a tower reads about 64 words


class TextTower:
    """Texts to unit vectors in the space that images share. ``config`` describes both towers, the images' one empty."""

    def __init__(self, model: Any, tokenizer: Any, config: dict[str, Any]) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.config = config

    @torch.inference_mode()
    def features(self, texts: Sequence[str]) -> torch.Tensor:
        """Return unit vectors (N, channels) of texts; what is too long for the tower is cut off."""
        found = [self._features(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
        return torch.cat(found)

    def _features(self, texts: Sequence[str]) -> torch.Tensor:
        inputs = self.tokenizer(
            [self._prepared(text) for text in texts],
            padding="max_length" if self._is_siglip else True,  # as SigLIP was trained
            truncation=True,
            max_length=self.config["text_config"]["max_position_embeddings"],
            return_tensors="pt",
        )
        given = {"input_ids": inputs["input_ids"]}
        if not self._is_siglip:  # SigLIP was trained without a mask
            given["attention_mask"] = inputs["attention_mask"]
        return functional.normalize(pooled_features(self.model.get_text_features(**given)).float(), dim=1)

    @property
    def _is_siglip(self) -> bool:
        return self.config["model_type"] == "siglip"

    def _prepared(self, text: str) -> str:
        """SigLIP 2 was trained on lower case, which its tokenizer, Gemma's, does not do in every version."""
        lower = self._is_siglip and type(self.tokenizer).__name__.startswith(("Gemma", "Siglip2"))
        return text.lower() if lower else text

    def save(self, folder: Path) -> None:
        """Write it into a folder, unless it is there already."""
        from tophit.models.embedder import digest

        state = {name: value.detach().cpu().contiguous() for name, value in self.model.state_dict().items()}
        mark = digest(state, self.config)
        if (folder / _DESCRIPTION).is_file() and read_small_json(folder / _DESCRIPTION).get("digest") == mark:
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _DESCRIPTION).unlink(missing_ok=True)  # written last: a folder without it is not complete
        with replace_file(folder / _WEIGHTS) as temporary:
            save_file(state, temporary)
        self.tokenizer.save_pretrained(folder)
        write_json(folder / _DESCRIPTION, {"config": self.config, "digest": mark})

    @classmethod
    def of_model(cls, name: str) -> "TextTower":
        """Return the text tower of a model on the hub or in a folder."""
        transformers: Any = import_library("transformers", f"hf/{name}", "'tophit[hf]'")
        try:
            model = transformers.AutoModel.from_pretrained(name, local_files_only=offline())
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                name, local_files_only=offline(), trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise unreachable(f"hf/{name}", error, "download the model with its tokenizer.") from error
        config = json.loads(model.config.to_json_string(use_diff=False))
        if (
            len(tokenizer) < config["text_config"]["vocab_size"] // 2
        ):  # transformers makes one up if its files are missing
            raise TophitError(f"'hf/{name}' has no tokenizer beside its weights; download its tokenizer files too.")
        config["vision_config"]["num_hidden_layers"] = 0
        return cls(_without_images(model), tokenizer, config)

    @classmethod
    def load(cls, folder: Path) -> "TextTower":
        """Load what :meth:`save` wrote, without a network."""
        transformers: Any = import_library("transformers", "the text tower", "'tophit[hf]'")
        try:
            config = read_small_json(folder / _DESCRIPTION)["config"]
            if config["model_type"] not in FAMILIES:
                raise ValueError(f"there is no text tower of the kind {config['model_type']!r}")
            state = read_weights(str(folder / _WEIGHTS))
            with without_hub():
                settings = transformers.AutoConfig.for_model(**config)
                with torch.device("meta"):
                    planned = _without_images(transformers.AutoModel.from_config(settings))
                if sum(each.numel() for each in planned.parameters()) > sum(each.numel() for each in state.values()):
                    raise ValueError("its configuration has more weights than its file")
                model = _without_images(transformers.AutoModel.from_config(settings))
                tokenizer = transformers.AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                )
            model.load_state_dict(state)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise TophitError(f"{folder} does not hold a text tower: {error}") from error
        return cls(model, tokenizer, config)


def copy_tower(source: Path, target: Path) -> None:
    """Copy the files of a text tower."""
    if source.resolve() != target.resolve():
        shutil.copytree(source, target, dirs_exist_ok=True)


def is_tower(folder: Path) -> bool:
    """Return whether a folder holds a complete text tower."""
    return (folder / _DESCRIPTION).is_file()


def no_words(architecture: Mapping[str, Any]) -> UsageError:
    """Return the error for words given to an embedder that takes none."""
    name, pooling = architecture["backbone"], architecture["pooling"]
    if (architecture.get("config") or {}).get("model_type") in FAMILIES and pooling != JOINT:
        return UsageError(
            f"This model takes no words: its images are pooled by '{pooling}', which leaves the space of the text "
            f"tower of '{name}'; use embedder.pooling: joint."
        )
    return UsageError(f"This model takes no words: '{name}' has no text tower. Backbones with one: {BACKBONES}.")


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


def pooled_features(found: Any) -> torch.Tensor:
    """Return the features that transformers gives as a tensor, or since its fifth version with other outputs."""
    return found if isinstance(found, torch.Tensor) else found.pooler_output


def _without_images(model: Any) -> Any:
    for part in ("vision_model", "visual_projection"):
        if hasattr(model, part):
            delattr(model, part)
    return model
