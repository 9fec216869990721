"""What a model's name stands for, and where it can be exported to, told without torch, whose import takes long."""

import fnmatch
from pathlib import Path

from tophit.errors import TophitError, UsageError
from tophit.files import check_folder
from tophit.registry import is_known, names

DESCRIPTION = "embedder.json"


def backbone_names(pattern: str = "*") -> list[str]:
    """Return the registered names that match a pattern such as ``efficientnet*``, without libraries."""
    return sorted(name for name in fnmatch.filter(names("backbone"), pattern) if not name.endswith("/"))


def is_backbone(name: str) -> bool:
    """Return whether a name is registered or belongs to a library's model."""
    return is_known("backbone", name)


def embedder_folder(name: str | Path) -> Path | None:
    """Return the folder of the embedder that a run or an embedder's folder holds; None for a backbone's name."""
    folder = Path(name)
    for candidate in (folder, folder / "best", folder / "embedder"):
        if (candidate / DESCRIPTION).is_file():
            return candidate
    if is_backbone(str(name)):
        return None
    if folder.is_dir():
        raise TophitError(
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
