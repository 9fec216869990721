"""What a model's name stands for, and where it can be exported to, told without torch, whose import takes long."""

import fnmatch
from collections.abc import Callable, Collection
from pathlib import Path

from tophit.errors import UsageError
from tophit.files import check_folder
from tophit.registry import is_known, names

DESCRIPTION = "embedder.json"
# What a name meant in earlier versions: a weight that only that network has, and the network's name now.
_EARLIER = {"googlenet": ("conv1.bn.weight", "googlenet-bn")}


def backbone_names(pattern: str = "*") -> list[str]:
    """Return the registered names that match a pattern such as ``efficientnet*``, without libraries."""
    return sorted(name for name in fnmatch.filter(names("backbone"), pattern) if not name.endswith("/"))


def is_backbone(name: str) -> bool:
    """Return whether a name is registered or belongs to a library's model."""
    return is_known("backbone", name)


def renamed(name: str, weights: Callable[[], Collection[str]]) -> str:
    """Return today's name of the backbone that was saved under a name, told by the names of its weights.

    Until 0.1.0, ``googlenet`` was the network with BatchNorm. ``weights`` is called only for such a name.
    """
    if name not in _EARLIER:
        return name
    mark, now = _EARLIER[name]
    return now if mark in weights() else name


def embedder_folder(name: str | Path) -> Path | None:
    """Return the folder of the embedder that a run or an embedder's folder holds; None for a backbone's name."""
    folder = Path(name)
    for candidate in (folder, folder / "best", folder / "embedder"):
        if (candidate / DESCRIPTION).is_file():
            return candidate
    if is_backbone(str(name)):
        return None
    if folder.is_dir():
        raise UsageError(
            f"{folder} holds no embedder: expected {DESCRIPTION} in it or in {folder / 'best'} "
            "(a run has one after its first evaluation)."
        )
    raise UsageError(
        f"'{name}' is not the folder of a run or an embedder, nor a backbone; "
        f"the backbones are {', '.join(backbone_names())}."
    )


def check_model(name: str | Path) -> None:
    """Refuse a name that stands for no model; what is on the Hugging Face Hub is not looked up."""
    if not str(name).startswith("hf:"):
        embedder_folder(name)


def check_onnx_file(path: str | Path) -> None:
    """Refuse a file that an exported model can't be written to."""
    path = Path(path)
    if path.suffix != ".onnx":
        raise UsageError(f"The name of an exported model must end in .onnx, not '{path.name}'.")
    check_folder(path.parent, "--out")
