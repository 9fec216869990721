"""Whether a saved embedder takes words, told without torch, whose import takes long."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tophit.errors import UsageError
from tophit.models.description import saved_architecture

JOINT = "joint"
"""Instead of a pooling: the backbone's own, into the space that its text tower shares."""
FOLDER = "text"
FAMILIES = ("clip", "siglip")
"""The kinds of configurations of transformers whose models have both towers in a form that is read here."""
OPEN_CLIP = "open_clip"
"""The kind of configuration that stands for every model of open_clip."""
TOWER = "tower.json"
"""The file in that folder that describes the tower."""
BACKBONES = (
    "hf/NAME of the CLIP and SigLIP families, such as hf/openai/clip-vit-base-patch32, and open_clip/NAME:WEIGHTS"
)


def check_takes_words(folder: Path) -> None:
    """Refuse an embedder's folder without a text tower; one that can't be read is left to who loads it."""
    architecture = saved_architecture(folder)
    if architecture is not None and not has_tower(folder, architecture):
        raise no_words(architecture)


def has_tower(folder: Path, architecture: Mapping[str, Any]) -> bool:
    """Return whether an embedder's folder holds a text tower that its images can be compared with."""
    return architecture.get("pooling") == JOINT and is_tower(folder / FOLDER)


def is_tower(folder: Path) -> bool:
    """Return whether a folder holds a complete text tower."""
    return (folder / TOWER).is_file()


def no_words(architecture: Mapping[str, Any]) -> UsageError:
    """Return the error for words given to an embedder that takes none."""
    name, pooling = architecture["backbone"], architecture.get("pooling")
    if (architecture.get("config") or {}).get("model_type") in (*FAMILIES, OPEN_CLIP) and pooling != JOINT:
        return UsageError(
            f"This model takes no words: its images are pooled by '{pooling}', which leaves the space of the text "
            f"tower of '{name}'; use embedder.pooling: joint."
        )
    return UsageError(f"This model takes no words: '{name}' has no text tower. Backbones with one: {BACKBONES}.")
