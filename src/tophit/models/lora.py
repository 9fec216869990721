"""LoRA (Hu et al., ICLR 2022): small matrices beside the linear layers of a transformer learn, the layers do not.

A layer W becomes W + (alpha / rank) B A, with B (out, rank) that begins at 0 and A (rank, in). Through peft.
"""

from typing import Any

from torch import nn

from tophit.errors import UsageError
from tophit.models.backbones import Backbone, import_library
from tophit.models.embedder import Embedder
from tophit.models.weights import State

_ADAPTER, _LAYER = ".lora_", ".base_layer"


def add_adapters(embedder: Embedder, rank: int, alpha: float, last: int | None = None) -> None:
    """Add LoRA to the linear layers of a backbone's stages, or of its ``last`` stages only, in place."""
    backbone, name = embedder.backbone, embedder.architecture["backbone"]
    library: Any = import_library("peft", name, "'tophit[lora]'")
    targets = _linear_layers(backbone, last)
    if not targets:
        raise UsageError(
            f"embedder.trainable: lora is for transformers, and '{name}' has no linear layers in its stages; use "
            "'last' or 'all', or a backbone such as hf/facebook/dinov2-small."
        )
    config = library.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=targets)
    library.inject_adapter_in_model(config, backbone)
    for weights_name, weights in backbone.named_parameters():
        weights.requires_grad_(is_adapter(weights_name))


def is_adapter(name: str) -> bool:
    """Return whether a parameter of this name belongs to an adapter."""
    return _ADAPTER in f".{name}"


def has_adapters(module: nn.Module) -> bool:
    """Return whether a module has adapters."""
    return any(is_adapter(name) for name, _ in module.named_parameters())


def merged_state(embedder: Embedder) -> State:
    """Return the state of the same embedder without adapters: each layer's weight has its adapter's product added."""
    state = {
        name.replace(_LAYER, ""): value.detach()
        for name, value in embedder.state_dict().items()
        if not is_adapter(name)
    }
    for name, module in embedder.named_modules():
        if hasattr(module, "lora_A") and hasattr(module, "get_delta_weight"):
            adapter: Any = module
            for each in adapter.active_adapters:
                weight = f"{name}.weight"
                state[weight] = state[weight] + adapter.get_delta_weight(each).detach().to(state[weight])
    return state


def _linear_layers(backbone: Backbone, last: int | None) -> list[str]:
    stages = backbone.stages()
    chosen = stages if last is None else stages[-last:]
    wanted = {id(layer) for stage in chosen for module in stage.modules for layer in module.modules()}
    attentions = (module for module in backbone.modules() if isinstance(module, nn.MultiheadAttention))
    wanted -= {id(layer) for module in attentions for layer in module.modules()}  # torch's reads only their weights
    return [name for name, layer in backbone.named_modules() if isinstance(layer, nn.Linear) and id(layer) in wanted]
