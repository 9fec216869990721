"""What a saved embedder says of itself, checked before anything is built from it: its file may be anybody's.

Nothing that it names is looked up on the network, and it makes nothing larger than its own file of weights.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tophit.errors import TophitError, UsageError
from tophit.files import read_small_json
from tophit.models.named import DESCRIPTION, embedder_folder

if TYPE_CHECKING:
    import torch

FORMAT = 1

_MOST_SIDE = 8192
_MOST_LEVELS = 16


def read_description(path: Path) -> dict[str, Any]:
    """Read and check an embedder's description; mistakes in it are ``ValueError``, ``KeyError`` or ``TypeError``."""
    fields = read_small_json(path)
    if fields["format"] != FORMAT:
        raise TophitError(f"{path.parent} has format {fields['format']}; this version of Tophit reads {FORMAT}.")
    architecture, preprocessing = fields["architecture"], fields["preprocessing"]
    _check(isinstance(architecture["backbone"], str), "backbone is a name")
    dim = architecture["dim"]
    _check(dim is None or (_is_whole(dim) and dim >= 1), "dim is a whole number of at least 1, or null")
    _check(_is_number(architecture["p"]) and architecture["p"] > 0, "p is a number above 0")
    levels = architecture.get("levels", 3)
    _check(_is_whole(levels) and 1 <= levels <= _MOST_LEVELS, f"levels is a whole number from 1 to {_MOST_LEVELS}")
    size, crop = preprocessing["size"], preprocessing["crop"]
    _check(_is_whole(size) and 1 <= size <= _MOST_SIDE, f"size is a whole number from 1 to {_MOST_SIDE}")
    _check(_is_number(crop) and 0 < crop <= 1, "crop is a share above 0 and up to 1")
    for name in ("mean", "std"):
        values = preprocessing[name]
        good = isinstance(values, list) and len(values) == 3 and all(map(_is_number, values))
        _check(good and (name == "mean" or min(values) > 0), f"{name} has three numbers, above 0 for std")
    return fields


def vector_length(model: str | Path) -> int | None:
    """Return the length of a model's vectors, told without torch; None where only its network knows it."""
    folder = None if str(model).startswith("hf:") else embedder_folder(model)
    return ((saved_architecture(folder) if folder is not None else None) or {}).get("dim")


def check_shorter(model: str | Path, dim: int | None) -> None:
    """Refuse a length that a model's vectors can't be shortened to, before torch is imported."""
    length = None if dim is None else vector_length(model)
    if dim is not None and length is not None and not 1 <= dim <= length:
        raise not_shorter(dim, length)


def not_shorter(dim: int, length: int) -> UsageError:
    """Return the error for vectors that are to be shortened to a length that they don't have."""
    return UsageError(f"The vectors have {length} numbers; a shorter one has 1 to {length}, not {dim}.")


def saved_architecture(folder: Path) -> dict[str, Any] | None:
    """Return the architecture that an embedder's folder describes; None if it can't be read, which loading it tells."""
    try:
        return read_description(folder / DESCRIPTION)["architecture"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_network_free(name: str, config: Mapping[str, Any] | None) -> None:
    """Refuse a saved backbone that could be built only with the network's help."""
    library, vision = name.split("/")[0], (config or {}).get("vision_cfg")
    of_timm = vision.get("timm_model_name") if isinstance(vision, Mapping) else name if library == "timm" else ""
    if (library in ("hf", "open_clip") and config is None) or ":" in str(of_timm):  # timm downloads what has a colon
        raise TophitError(
            f"The saved embedder names '{name}' without its configuration, so it would have to be looked up on the "
            "network. Name the model yourself, with its weights, if you trust it."
        )


def check_size(head: "torch.nn.Module", state: "Mapping[str, torch.Tensor]") -> None:
    """Refuse a head, built without memory, whose shape is not that of its weights."""
    for name, value in head.state_dict().items():
        found = state.get(f"head.{name}")
        if found is None or found.shape != value.shape:
            shape = "missing" if found is None else "x".join(map(str, found.shape))
            raise ValueError(f"head.{name} is {shape}, not {'x'.join(map(str, value.shape))}")


@contextmanager
def without_hub() -> Iterator[None]:
    """Keep the libraries of Hugging Face from the network inside a block."""
    constants: Any = sys.modules.get("huggingface_hub.constants")
    if constants is None:
        try:
            import huggingface_hub.constants as constants
        except ImportError:
            yield
            return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _check(good: bool, rule: str) -> None:
    if not good:
        raise ValueError(rule)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
