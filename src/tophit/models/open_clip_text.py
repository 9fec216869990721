"""The text towers of open_clip."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tophit.errors import TophitError
from tophit.files import read_small_json
from tophit.models.open_clip_names import OpenClipModel, open_clip
from tophit.models.text_facts import OPEN_CLIP
from tophit.models.text_tower import TextTower

_IMAGES = {"layers": 1, "width": 8, "head_width": 8, "image_size": 8, "patch_size": 8}  # open_clip builds both towers
_ENCODER = "config.json"  # of a text tower that is a model of transformers
_TOKENIZER_OPTIONS = {"clean", "strip_sep_token", "language"}


class OpenClipTextTower(TextTower):
    """A text tower of open_clip. ``config`` is open_clip's own, without the image tower."""

    def _features(self, texts: Sequence[str]) -> torch.Tensor:
        return self.model.encode_text(self.tokenizer(list(texts)))

    @classmethod
    def of_model(cls, model: OpenClipModel) -> "OpenClipTextTower":
        """Return the text tower of a model with its trained weights."""
        trained, tokenizer = model.load(), model.tokenizer()
        text = {**model.config["text_cfg"], "output_tokens": False, "hf_model_pretrained": False}
        config = {
            "model_type": OPEN_CLIP,
            "embed_dim": model.config["embed_dim"],
            "text_cfg": text,
            "quick_gelu": bool(model.config.get("quick_gelu")),
            "custom_text": bool(model.config.get("custom_text")) or bool(text.get("hf_model_name")),
        }
        made, state = _built(config), trained.state_dict()
        made.load_state_dict({name: state[name] for name in made.state_dict()})
        return cls(made, tokenizer, config)

    def _save_tokenizer(self, folder: Path) -> None:
        if self.config["text_cfg"].get("hf_model_name"):
            self.model.text.config.save_pretrained(folder)
        if self.config["text_cfg"].get("hf_tokenizer_name"):
            self.tokenizer.save_pretrained(folder)
        elif not isinstance(self.tokenizer, open_clip("the text tower").SimpleTokenizer):  # which is part of open_clip
            raise TophitError(f"a tokenizer of the kind {type(self.tokenizer).__name__} can't be kept.")

    @staticmethod
    def _empty_model(config: dict[str, Any], folder: Path) -> Any:
        text = {**config["text_cfg"], "hf_model_pretrained": False}
        if text.get("hf_model_name"):
            if "auto_map" in read_small_json(folder / _ENCODER):
                raise ValueError(f"{_ENCODER} names code of its own, which is not run")
            text["hf_model_name"] = str(folder)
        return _built({**config, "text_cfg": text})

    @staticmethod
    def _saved_tokenizer(config: dict[str, Any], folder: Path) -> Any:
        library, text = open_clip("the text tower"), config["text_cfg"]
        options = {"context_length": text.get("context_length", 77), **(text.get("tokenizer_kwargs") or {})}
        if not set(options) <= _TOKENIZER_OPTIONS | {"context_length"}:
            raise ValueError(f"its tokenizer has options other than {', '.join(sorted(_TOKENIZER_OPTIONS))}")
        if not text.get("hf_tokenizer_name"):
            return library.SimpleTokenizer(**options)
        mode = text.get("tokenizer_mode")
        return library.tokenizer.HFTokenizer(str(folder), tokenizer_mode=mode, trust_remote_code=False, **options)


def _built(config: dict[str, Any]) -> Any:
    """Build a text tower; an image tower of a few numbers is thrown away."""
    library = open_clip("the text tower")
    kind = library.CustomTextCLIP if config["custom_text"] else library.CLIP
    model = kind(config["embed_dim"], dict(_IMAGES), dict(config["text_cfg"]), config["quick_gelu"])
    for part in ("visual", "logit_scale", "logit_bias"):
        delattr(model, part)
    return model
