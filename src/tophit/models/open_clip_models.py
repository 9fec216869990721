"""``open_clip/NAME``: the image towers of open_clip, whose text towers share a space with them.

:mod:`tophit.models.open_clip_names` says what NAME may be.
"""

from typing import Any

import torch
from torch.nn import functional

from tophit.errors import TophitError, UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, BackboneSpec, Stage, joined, register_backbone, unrolled
from tophit.models.open_clip_names import find_model, open_clip
from tophit.models.open_clip_text import OpenClipTextTower
from tophit.models.text_facts import OPEN_CLIP
from tophit.models.timm_models import TimmBackbone
from tophit.models.weights import State

_TEXT = {"width": 8, "heads": 1, "layers": 1, "vocab_size": 1, "context_length": 1}  # open_clip builds both towers
_PREFIX = "visual."


class OpenClipBackbone(Backbone):
    """An image tower of open_clip, without its pooling and projection, which are ``joint``."""

    def __init__(self, visual: Any, config: dict[str, Any]) -> None:
        super().__init__()
        self.visual = visual
        self.config = config
        self.joint_channels = int(config["embed_dim"])
        size = config["vision_cfg"].get("image_size", 224)
        self.side = size if isinstance(size, int) else size[0]

    def joint(self, x: torch.Tensor) -> torch.Tensor:
        """Map the output to unit vectors (N, joint_channels): the model's own features of images."""
        return functional.normalize(self._pooled(x), dim=1)

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _checked(self, x: torch.Tensor) -> torch.Tensor:
        """Refuse images of another size, which most of open_clip's towers can't take."""
        if tuple(x.shape[2:]) != (self.side, self.side):
            raise UsageError(
                f"This model of open_clip takes images of {self.side} x {self.side} pixels, not "
                f"{x.shape[3]} x {x.shape[2]}: leave out embedder.size."
            )
        return x


class _Transformer(OpenClipBackbone):
    """open_clip's own ViT: the tokens after its last block."""

    prefix_tokens, has_cls = 1, True

    def __init__(self, visual: Any, config: dict[str, Any]) -> None:
        super().__init__(visual, config)
        self.channels = visual.conv1.out_channels

    def stages(self) -> list[Stage]:
        blocks = enumerate(self.visual.transformer.resblocks)
        first = Stage("embeddings", lambda x: self.visual._embeds(self._checked(x)), ())
        return joined([first, *(Stage(f"blocks.{i}", block, (block,)) for i, block in blocks)])

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        return self.visual._pool(x)[0] @ self.visual.proj


class _ResNet(OpenClipBackbone):
    """CLIP's own ResNet: the feature map before its attention."""

    def __init__(self, visual: Any, config: dict[str, Any]) -> None:
        super().__init__(visual, config)
        self.channels = visual.attnpool.v_proj.in_features

    def stages(self) -> list[Stage]:
        layers = [f"layer{number}" for number in range(1, 5)]
        first = Stage("stem", lambda x: self.visual.stem(self._checked(x)), ())
        return [first, *(stage for name in layers for stage in unrolled(name, getattr(self.visual, name)))]

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        return self.visual.attnpool(x)


class _OfTimm(OpenClipBackbone):
    """A network of timm, which open_clip calls the trunk, with a head of open_clip."""

    def __init__(self, visual: Any, config: dict[str, Any]) -> None:
        super().__init__(visual, config)
        trunk = self._trunk
        self.channels, self.prefix_tokens, self.has_cls = trunk.channels, trunk.prefix_tokens, trunk.has_cls

    @property
    def _trunk(self) -> TimmBackbone:
        """The trunk as timm's networks are; made when needed, so that no weights are held twice."""
        return TimmBackbone(self.visual.trunk)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._trunk(self._checked(x))

    def stages(self) -> list[Stage]:
        first, *others = self._trunk.stages()
        return [Stage(first.name, lambda x: first.run(self._checked(x)), first.modules), *others]

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim == 4 and self._trunk.channels_come_last:
            x = x.permute(0, 2, 3, 1)
        return self.visual.head(self.visual.trunk.forward_head(x))


_KINDS = {"trunk": _OfTimm, "attnpool": _ResNet, "transformer": _Transformer}


@register_backbone("open_clip/")
def open_clip_spec(name: str, config: dict[str, Any] | None = None) -> BackboneSpec:
    """Describe an image tower of open_clip, by its name or by what a saved embedder keeps of its configuration."""
    full_name = f"open_clip/{name}"
    if config is not None:
        return BackboneSpec(lambda: _built(full_name, config), Preprocessing(), None, _image_tower)
    model = find_model(name)
    kept = _kept(model.config)

    def pretrained() -> State:
        return _image_tower(model.load().state_dict())

    return BackboneSpec(
        build=lambda: _built(full_name, kept),
        preprocessing=model.preprocessing(),
        pretrained=pretrained,
        from_file=_image_tower,
        text=lambda: OpenClipTextTower.of_model(model),
    )


def _kept(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is needed to build an image tower: none of its patches are dropped, and nothing is downloaded."""
    vision = {**config["vision_cfg"], "patch_dropout": 0.0, "timm_model_pretrained": False}
    quick = bool(config.get("quick_gelu"))
    return {"model_type": OPEN_CLIP, "embed_dim": config["embed_dim"], "vision_cfg": vision, "quick_gelu": quick}


def _built(full_name: str, config: dict[str, Any]) -> Backbone:
    """Build an image tower; a text tower of a few numbers is thrown away."""
    library, kept = open_clip(full_name), _kept(config)
    try:
        visual = library.CLIP(kept["embed_dim"], kept["vision_cfg"], dict(_TEXT), kept["quick_gelu"]).visual
    except (RuntimeError, AssertionError) as error:
        raise TophitError(f"'{full_name}' can't be built: {error}") from error
    kind = next((kind for part, kind in _KINDS.items() if hasattr(visual, part)), None)
    if kind is None:
        raise UsageError(f"'{full_name}' has an image tower of an unknown kind, {type(visual).__name__}.")
    return kind(visual, kept)


def _image_tower(state: State) -> State:
    """Return the weights of the image tower of a model with two; a file may hold that tower alone."""
    own = {name: value for name, value in state.items() if name.startswith(_PREFIX)}
    return own or {f"{_PREFIX}{name}": value for name, value in state.items()}
