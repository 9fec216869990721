"""``hf/NAME``: the vision models of Hugging Face transformers, such as DINOv2 and SigLIP.

NAME is the model's name on the hub, or the path of a folder made by ``save_pretrained`` or a download.
"""

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tophit.errors import UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    BackboneSpec,
    Stage,
    import_library,
    inside_model,
    joined,
    register_backbone,
    three,
    unreachable,
)
from tophit.models.hf_text import HFTextTower
from tophit.models.text_facts import FAMILIES
from tophit.models.weights import State, offline

_BLOCKS = ("layer", "layers", "stages")  # the names of lists of blocks
_LAST_NORMS = ("layernorm", "post_layernorm", "norm")
_CLASS_TOKENS = ("cls_token", "class_embedding", "class_token")


class HFBackbone(Backbone):
    """A vision model of transformers, without its own pooling.

    ``both`` is the configuration of a model with a text tower; ``joint`` is then that model's own pooling.
    """

    def __init__(self, model: Any, both: Any = None) -> None:
        super().__init__()
        self.model = model
        config = model.config
        self.config = json.loads((both or config).to_json_string(use_diff=False))
        sizes = getattr(config, "hidden_sizes", None)
        self.channels = sizes[-1] if sizes else config.hidden_size
        names = [name.rsplit(".", 1)[-1] for name, _ in model.named_parameters()]
        self.has_cls = any(name in _CLASS_TOKENS for name in names) or _has_class_embedding(model)
        further = int("distillation_token" in names) + (getattr(config, "num_register_tokens", 0) or 0)
        self.prefix_tokens = int(self.has_cls) + further
        self.side = config.image_size if isinstance(getattr(config, "image_size", None), int) else None
        self.interpolates = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters

        self.projection: nn.Module | None = None
        if both is not None and both.model_type == "clip":
            self.joint_channels = int(both.projection_dim)
            self.projection = nn.Linear(self.channels, self.joint_channels, bias=False)
        elif both is not None and hasattr(model, "head"):
            self.joint_channels = self.channels

    def joint(self, x: torch.Tensor) -> torch.Tensor:
        """Map tokens (N, T, channels) to unit vectors (N, joint_channels): the model's own features of images."""
        pooled = self.model.head(x) if self.projection is None else self.projection(self.model.post_layernorm(x[:, 0]))
        return functional.normalize(pooled, dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images to tokens (N, T, channels) or a feature map (N, channels, h, w)."""
        return self.model(pixel_values=x, **self._options(x)).last_hidden_state

    def stages(self) -> list[Stage]:
        """Return the embedding and the blocks, found by the names that transformers gives them."""
        model = self.model
        first = next((name for name in ("embeddings", "embedder") if hasattr(model, name)), None)
        lists = (getattr(holder, name, None) for holder in _holders(model) for name in _BLOCKS)
        blocks = next((found for found in lists if isinstance(found, nn.ModuleList)), None)
        if first is None or blocks is None:
            return super().stages()
        before = [name for name in ("pre_layrnorm",) if hasattr(model, name)]
        after = [name for name in _LAST_NORMS if hasattr(model, name) and not before]  # CLIP's is for its class token
        stages = [Stage(first, lambda x: getattr(model, first)(x, **self._options(x)), ())]
        stages += [Stage(name, getattr(model, name), (getattr(model, name),)) for name in before]
        stages += [Stage(f"blocks.{i}", _hidden_states(block), (block,)) for i, block in enumerate(blocks)]
        stages += [Stage(name, getattr(model, name), (getattr(model, name),)) for name in after]
        return joined(stages)

    def _options(self, x: torch.Tensor) -> dict[str, Any]:
        other_size = self.interpolates and self.side is not None and tuple(x.shape[2:]) != (self.side, self.side)
        return {"interpolate_pos_encoding": True} if other_size else {}


def _holders(model: Any) -> Iterator[Any]:
    """Yield the modules that may hold the list of blocks."""
    yield from (getattr(model, name) for name in ("encoder", "model") if hasattr(model, name))
    yield model


def _hidden_states(block: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a block that takes and gives hidden states only: some take a mask, some give a tuple."""
    options = {"attention_mask": None} if "attention_mask" in inspect.signature(block.forward).parameters else {}

    def run(x: torch.Tensor) -> torch.Tensor:
        y = block(x, **options)
        return y[0] if isinstance(y, tuple) else y

    return run


def _has_class_embedding(model: Any) -> bool:
    return any(hasattr(module, name) for module in model.modules() for name in _CLASS_TOKENS)


@register_backbone("hf/")
def hf_spec(name: str, config: dict[str, Any] | None = None) -> BackboneSpec:
    """Describe a vision model of transformers, from its configuration on the hub, in a folder, or given."""
    full_name = f"hf/{name}"
    transformers: Any = import_library("transformers", full_name, "'tophit[hf]'")
    preprocessing = Preprocessing()
    if config is None:
        advice = (
            f"download it on a machine with network access (hf download {name} --local-dir FOLDER), copy the folder "
            "here, and use it as hf/FOLDER."
        )
        try:
            found = transformers.AutoConfig.from_pretrained(name, local_files_only=offline())
        except (OSError, ValueError) as error:
            raise unreachable(full_name, error, advice) from error
        settings = getattr(found, "vision_config", found)
        preprocessing = _preprocessing(name, settings, transformers)
    else:
        found = transformers.AutoConfig.for_model(**config)
        settings = getattr(found, "vision_config", found)
        advice = "the embedder's own weights are used."
    if found.model_type == "siglip2":
        raise UsageError(
            f"'{full_name}' is a SigLIP 2 of free shapes (NaFlex), which takes patches instead of images; use one of a "
            "fixed resolution, such as hf/google/siglip2-base-patch16-224."
        )
    both = found if found.model_type in FAMILIES and settings is not found else None

    def build() -> Backbone:
        model = transformers.AutoModel.from_config(settings)
        if "pixel_values" not in inspect.signature(model.forward).parameters:
            raise UsageError(f"'{full_name}' is not a vision model: it takes no images.")
        return HFBackbone(model, both)

    def pretrained() -> State:
        if both is not None:
            return _image_tower(transformers, name, full_name, advice)
        with torch.device("meta"):  # only its class is needed
            kind = type(transformers.AutoModel.from_config(settings))
        try:
            return kind.from_pretrained(name, config=settings, local_files_only=offline()).state_dict()
        except (OSError, ValueError) as error:
            raise unreachable(full_name, error, advice) from error

    text = (lambda: HFTextTower.of_model(name)) if both is not None and config is None else None
    return BackboneSpec(build, preprocessing, pretrained, _inside, text)


def _image_tower(transformers: Any, name: str, full_name: str, advice: str) -> State:
    """Return the weights of the image tower of a model with two, and of the projection after it."""
    try:
        model = transformers.AutoModel.from_pretrained(name, local_files_only=offline())
    except (OSError, ValueError) as error:
        raise unreachable(full_name, error, advice) from error
    state = {f"model.{key}": value for key, value in model.vision_model.state_dict().items()}
    if hasattr(model, "visual_projection"):
        state["projection.weight"] = model.visual_projection.weight.detach()
    return state


def _inside(state: State) -> State:
    own = {name: value for name, value in state.items() if name.startswith("projection.")}
    return own | inside_model({name: value for name, value in state.items() if name not in own})


def _preprocessing(name: str, config: Any, transformers: Any) -> Preprocessing:
    """Read ``preprocessor_config.json``; the processors themselves may need torchvision."""
    fields: dict[str, Any] = {}
    local = Path(name) / "preprocessor_config.json"
    if local.is_file():
        fields = json.loads(local.read_text(encoding="utf-8"))
    elif not Path(name).is_dir():
        try:
            cached = transformers.utils.cached_file(name, "preprocessor_config.json", local_files_only=offline())
            fields = json.loads(Path(cached).read_text(encoding="utf-8"))
        except OSError:
            fields = {}
    side = config.image_size if isinstance(getattr(config, "image_size", None), int) else 224
    resize, crop = _side(fields.get("size")), _side(fields.get("crop_size"))
    crops = fields.get("do_center_crop", False) and crop is not None and resize is not None
    size = (crop if crops else resize) or side
    return Preprocessing(
        size=size,
        crop=min(1.0, size / resize) if crops and resize else 1.0,
        mean=three(fields.get("image_mean") or IMAGENET_MEAN),
        std=three(fields.get("image_std") or IMAGENET_STD),
        squash=not crops and "shortest_edge" not in (fields.get("size") or {}),
    )


def _side(size: Any) -> int | None:
    if isinstance(size, dict):
        return size.get("shortest_edge") or size.get("height")
    return size if isinstance(size, int) else None
