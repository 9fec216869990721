"""The result of a run: what ``result.json`` holds, with names and types."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from tophit.evaluation import PairedDifference
from tophit.models.embedder import Embedder, load


class TrainingResult(dict[str, Any]):
    """The plain values of ``result.json``, and typed views of them.

    ``folder`` is the run's folder.
    """

    def __init__(self, folder: str | Path, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.folder = Path(folder)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of what the run kept, on the test classes."""
        return self["test"]

    @property
    def before(self) -> dict[str, float]:
        """The metrics of the untrained backbone on the test classes; empty if it was not measured."""
        return self.get("before") or {}

    @property
    def gain(self) -> dict[str, PairedDifference]:
        """What was gained over the untrained backbone on the test classes, with paired intervals over classes."""
        return {name: PairedDifference(**value) for name, value in self.get("gain", {}).items()}

    @property
    def kept(self) -> str:
        """What the run kept: ``trained``, ``backbone``, ``start`` or a mixture such as ``0.5 trained``."""
        return self.get("kept", {}).get("kept", "trained")

    @cached_property
    def embedder(self) -> Embedder:
        """What the run kept, ready to embed."""
        return load(self.folder / "best")

    def sentences(self) -> list[str]:
        """Say what was kept and what was gained."""
        found = [self["kept"]["sentence"]] if "kept" in self else []
        return [*found, gain_sentence(self)] if self.get("gain") else found


def gain_fields(gain: Mapping[str, PairedDifference], classes: int) -> dict[str, Any]:
    """Return gains as a result holds them."""
    return {"gain": {name: asdict(value) for name, value in gain.items()}, "gain_classes": classes}


def gain_sentence(result: Mapping[str, Any]) -> str:
    """Say in one sentence what was gained on the test classes over the untrained backbone."""
    if result.get("kept", {}).get("kept") == "backbone":
        return f"On the {result['gain_classes']} test classes nothing was gained: it is the untrained backbone."
    parts = []
    for name, value in result["gain"].items():
        mean, low, high = (100 * value[key] for key in ("mean", "low", "high"))
        parts.append(f"{name} {mean:+.1f} points (95% interval {low:+.1f} to {high:+.1f})")
    return f"Against the untrained backbone on the {result['gain_classes']} test classes: {', '.join(parts)}."
