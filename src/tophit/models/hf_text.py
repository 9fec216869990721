"""The text towers of CLIP and SigLIP of transformers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tophit.errors import TophitError
from tophit.models.backbones import import_library, unreachable
from tophit.models.text_tower import TextTower
from tophit.models.weights import offline


class HFTextTower(TextTower):
    """A text tower of transformers. ``config`` describes both towers, the images' one empty."""

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
        found = self.model.get_text_features(**given)
        return found if isinstance(found, torch.Tensor) else found.pooler_output  # since its fifth version

    @property
    def _is_siglip(self) -> bool:
        return self.config["model_type"] == "siglip"

    def _prepared(self, text: str) -> str:
        """SigLIP 2 was trained on lower case, which its tokenizer, Gemma's, does not do in every version."""
        lower = self._is_siglip and type(self.tokenizer).__name__.startswith(("Gemma", "Siglip2"))
        return text.lower() if lower else text

    def _save_tokenizer(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def of_model(cls, name: str) -> "HFTextTower":
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

    @staticmethod
    def _empty_model(config: dict[str, Any], folder: Path) -> Any:
        transformers = _transformers()
        return _without_images(transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config)))

    @staticmethod
    def _saved_tokenizer(config: dict[str, Any], folder: Path) -> Any:
        return _transformers().AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _transformers() -> Any:
    return import_library("transformers", "the text tower", "'tophit[hf]'")


def _without_images(model: Any) -> Any:
    for part in ("vision_model", "visual_projection"):
        if hasattr(model, part):
            delattr(model, part)
    return model
