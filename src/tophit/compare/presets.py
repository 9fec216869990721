"""Plans that ship with Tophit."""

from importlib.resources import files
from typing import Any

import yaml

from tophit.errors import UsageError

_FOLDER = "shipped"


def preset_names() -> list[str]:
    """Return the names of the plans that ship."""
    entries = (files("tophit.compare") / _FOLDER).iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml"))


def preset_fields(name: str) -> dict[str, Any]:
    """Return the fields of a shipped plan, which names no data."""
    if name not in preset_names():
        raise UsageError(f"There is no preset '{name}': {', '.join(preset_names())}.")
    return yaml.safe_load((files("tophit.compare") / _FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
