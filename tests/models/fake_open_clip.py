"""A stand-in for open_clip with the names and arguments that Tophit uses, for machines where it can't be imported."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

_WORDS = 97


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, attn_mask: Any = None) -> torch.Tensor:
        return x + self.mlp(x + x.mean(1, keepdim=True)).tanh()


class _Visual(nn.Module):
    def __init__(self, dim: int, width: int, layers: int, patch_size: int, image_size: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch_size, patch_size, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(torch.randn((image_size // patch_size) ** 2 + 1, width))
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList(_Block(width) for _ in range(layers))
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.randn(width, dim))

    def _embeds(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.conv1(x).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(x), 1, -1)
        return torch.cat([first, patches], 1) + self.positional_embedding

    def _pool(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.ln_post(x)
        return x[:, 0], x[:, 1:]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self._embeds(x)
        for block in self.transformer.resblocks:
            x = block(x)
        return self._pool(x)[0] @ self.proj


class _CLIP(nn.Module):
    def __init__(self, embed_dim: int, vision_cfg: Any, text_cfg: Any, quick_gelu: bool = False) -> None:
        super().__init__()
        vision = {"layers": 12, "width": 768, "patch_size": 16, "image_size": 224, **vision_cfg}
        self.visual = _Visual(embed_dim, *(vision[name] for name in ("width", "layers", "patch_size", "image_size")))
        self.token_embedding = nn.Embedding(text_cfg["vocab_size"], text_cfg["width"])
        self.transformer = nn.ModuleList(_Block(text_cfg["width"]) for _ in range(text_cfg["layers"]))
        self.text_projection = nn.Parameter(torch.randn(text_cfg["width"], embed_dim))
        self.logit_scale = nn.Parameter(torch.ones([]))
        self.logit_bias = None
        self.quick_gelu = quick_gelu

    def encode_image(self, images: torch.Tensor) -> torch.Tensor:
        return self.visual(images)

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token_embedding(tokens)
        for block in self.transformer:
            x = block(x)
        return x.mean(1) @ self.text_projection


class _SimpleTokenizer:
    def __init__(self, context_length: int = 77, clean: str = "lower") -> None:
        self.context_length = context_length

    def __call__(self, texts: list[str]) -> torch.Tensor:
        found = torch.zeros(len(texts), self.context_length, dtype=torch.long)
        for row, text in zip(found, texts, strict=True):
            numbers = [1 + sum(map(ord, word)) % (_WORDS - 1) for word in text.lower().split()][: self.context_length]
            row[: len(numbers)] = torch.tensor(numbers)
        return found


def fake_open_clip() -> Any:
    """Return the stand-in, which knows no model yet but what ``add_model_config`` adds."""
    configs: dict[str, Any] = {}
    tags: dict[str, dict[str, Any]] = {}
    openai = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

    def add_model_config(path: Path) -> None:
        configs[path.stem] = json.loads(path.read_text())

    def copied(name: str) -> Any:
        return json.loads(json.dumps(configs[name])) if name in configs else None

    def create_model(name: str, force_quick_gelu: bool = False) -> _CLIP:
        config = copied(name)
        quick = force_quick_gelu or config.get("quick_gelu", False)
        model: Any = _CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"], quick)
        size = config["vision_cfg"]["image_size"]
        model.visual.preprocess_cfg = {"size": (size, size), "mean": openai[0], "std": openai[1]}
        model.visual.preprocess_cfg["resize_mode"] = "shortest"
        return model

    def create_model_from_pretrained(
        name: str, pretrained: str, force_quick_gelu: bool = False, return_transform: bool = True
    ) -> _CLIP:
        if not Path(pretrained).is_file():
            raise RuntimeError(f"Failed to download weights for tag '{pretrained}'")
        model = create_model(name, force_quick_gelu)
        model.load_state_dict(torch.load(pretrained, weights_only=True))
        return model

    return SimpleNamespace(
        __spec__=None,
        CLIP=_CLIP,
        SimpleTokenizer=_SimpleTokenizer,
        OPENAI_DATASET_MEAN=openai[0],
        OPENAI_DATASET_STD=openai[1],
        add_model_config=add_model_config,
        create_model=create_model,
        create_model_from_pretrained=create_model_from_pretrained,
        get_model_config=copied,
        get_model_preprocess_cfg=lambda model: model.visual.preprocess_cfg,
        get_pretrained_cfg=lambda name, tag: tags.get(name, {}).get(tag, {}),
        get_tokenizer=lambda name: _SimpleTokenizer(configs[name]["text_cfg"]["context_length"]),
        is_pretrained_cfg=lambda name, tag: tag in tags.get(name, {}),
        list_models=lambda: list(configs),
        list_pretrained_tags_by_model=lambda name: list(tags.get(name, {})),
        tags=tags,
    )
