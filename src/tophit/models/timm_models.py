"""``timm/NAME``: any network of timm that gives a feature map or tokens."""

from typing import Any

import torch
from torch import nn

from tophit.errors import UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import (
    Backbone,
    BackboneSpec,
    Stage,
    import_library,
    inside_model,
    joined,
    register_backbone,
    unreachable,
    unrolled,
)
from tophit.models.weights import State, offline

_HEADS = (
    "global_pool",
    "avgpool",
    "head",
    "fc",
    "classifier",
    "flatten",
    "dropout",
)  # names of what follows the features


class TimmBackbone(Backbone):
    """A network of timm without its pooling and classifier."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.channels = model.num_features
        self.prefix_tokens = getattr(model, "num_prefix_tokens", 0)
        self.has_cls = getattr(model, "cls_token", None) is not None
        self.channels_come_last = getattr(model, "output_fmt", "NCHW") == "NHWC"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images to a feature map (N, channels, h, w) or tokens (N, T, channels)."""
        return self._channels_first(self.model.forward_features(x))

    def stages(self) -> list[Stage]:
        """Return a transformer's embedding and blocks; of other networks the children, which timm names in order."""
        model = self.model
        if all(hasattr(model, name) for name in ("patch_embed", "_pos_embed", "blocks", "norm")):
            stages = [Stage("embeddings", self._tokens, ())]
            stages += [*unrolled("blocks", model.blocks), *unrolled("norm", model.norm)]
        else:
            children = [each for each in model.named_children() if not each[0].startswith(_HEADS)]
            stages = [stage for name, child in children for stage in unrolled(name, child)]
        return joined([*stages, Stage("channels first", self._channels_first, ())])

    def _tokens(self, x: torch.Tensor) -> torch.Tensor:
        x = self.model._pos_embed(self.model.patch_embed(x))
        for name in ("patch_drop", "norm_pre"):
            x = getattr(self.model, name, nn.Identity())(x)
        return x

    def _channels_first(self, y: torch.Tensor) -> torch.Tensor:
        return y.permute(0, 3, 1, 2) if y.ndim == 4 and self.channels_come_last else y


@register_backbone("timm/")
def timm_spec(name: str, config: dict[str, Any] | None = None) -> BackboneSpec:
    """Describe a network of timm."""
    full_name = f"timm/{name}"
    timm: Any = import_library("timm", full_name, "timm")
    if not timm.is_model(name):
        near = timm.list_models(f"*{name.split('.')[0][:8]}*")[:3]
        raise UsageError(f"timm has no model '{name}'." + (f" It has {', '.join(near)}." if near else ""))
    model = timm.create_model(name, pretrained=False, num_classes=0)
    data = timm.data.resolve_model_data_config(model)

    def pretrained() -> State:
        try:
            if offline():
                raise OSError("TOPHIT_OFFLINE is set")
            return timm.create_model(name, pretrained=True, num_classes=0).state_dict()
        except (OSError, RuntimeError) as error:
            advice = "download its safetensors file from huggingface.co/timm and set embedder.weights to its path."
            raise unreachable(full_name, error, advice) from error

    def from_file(state: State) -> State:
        ours = TimmBackbone(model).state_dict()
        return {key: value for key, value in inside_model(state).items() if key in ours}

    preprocessing = Preprocessing(
        data["input_size"][-1], float(data["crop_pct"]), tuple(data["mean"]), tuple(data["std"])
    )

    def build() -> Backbone:
        return TimmBackbone(timm.create_model(name, pretrained=False, num_classes=0))

    return BackboneSpec(build, preprocessing, pretrained, from_file)
