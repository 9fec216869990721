"""The result of a run: what ``result.json`` holds, with names and types."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tophit.tables import Measured, as_html, as_text, metrics_table

if TYPE_CHECKING:
    from tophit.evaluation import PairedDifference
    from tophit.models.embedder import Embedder

_PERCENT = "On the test classes, in percent; ± is half of the 95% interval over classes."


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
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95% intervals of ``metrics``, over classes."""
        return {name: (low, high) for name, (low, high) in self.get("intervals", {}).items()}

    @property
    def before(self) -> dict[str, float]:
        """The metrics of the untrained backbone on the test classes; empty if it was not measured."""
        return self.get("before") or {}

    @property
    def gain(self) -> "dict[str, PairedDifference]":
        """What was gained over the untrained backbone on the test classes, with paired intervals over classes."""
        from tophit.evaluation import PairedDifference

        return {name: PairedDifference(**value) for name, value in self.get("gain", {}).items()}

    @property
    def kept(self) -> str:
        """What the run kept: ``trained``, ``backbone``, ``start`` or a mixture such as ``0.5 trained``."""
        return self.get("kept", {}).get("kept", "trained")

    @cached_property
    def embedder(self) -> "Embedder":
        """What the run kept, ready to embed."""
        from tophit.models import load

        return load(self.folder / "best")

    def sentences(self) -> list[str]:
        """Say what was kept, what was gained, and how well its chances hold."""
        found = [self["kept"]["sentence"]] if "kept" in self else []
        gained = [gain_sentence(self)] if self.get("gain") else []
        return [*found, *gained, *self.get("calibration", ())]

    def headline(self) -> str:
        """Say how long it took and where the embedder is."""
        took = f"{self['steps']} steps in {self['seconds']:.0f} s, best epoch {self['best_epoch']}"
        return f"{took}: {self.folder / 'best'}"

    def models(self) -> dict[str, Measured]:
        """Return what was measured on the test classes: the backbone before training, and what the run kept."""
        found: dict[str, Measured] = {}
        if self.before:
            found["backbone before training"] = (self.before, self["before_intervals"])
        if self.metrics:
            found["kept" if "kept" in self else "trained"] = (self.metrics, self.intervals)
        return found

    def __repr__(self) -> str:
        table = [as_text(metrics_table(self.models()))] if self.metrics else []
        return "\n".join([self.headline(), *self.sentences(), *table])

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(sentence) for sentence in (self.headline(), *self.sentences()))
        table = f"{as_html(metrics_table(self.models()))}<p>{_PERCENT}</p>" if self.metrics else ""
        return f"<p>{lines}</p>{table}"


def gain_fields(gain: "Mapping[str, PairedDifference]", classes: int) -> dict[str, Any]:
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
