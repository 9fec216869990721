"""A calibration as a file, ``calibration.json``, beside the embedder or the index whose scores it explains."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tophit.errors import TophitError
from tophit.evaluation.calibration import Calibration
from tophit.files import read_small_json, write_json
from tophit.wording import counted

NAME = "calibration.json"
SEVERAL = "Chances are calibrated for images with one label each; these have several."
_FORMAT = 2
_READ = (1, 2)


@dataclass(frozen=True)
class StoredCalibration:
    """A calibration, the embedder it belongs to, and what it was learned from, in words.

    ``per_class`` is how many items of a class the index holds, where its labels tell; None: as in the calibration.
    """

    calibration: Calibration
    fingerprint: str
    learned_from: str
    per_class: float | None = None

    def __repr__(self) -> str:
        """Say what it was learned from: its curves are thousands of numbers."""
        return "\n".join(self.sentences())

    def save(self, folder: str | Path) -> None:
        """Write it into a folder."""
        fields = {"format": _FORMAT, "fingerprint": self.fingerprint, "learned_from": self.learned_from}
        write_json(Path(folder) / NAME, {**fields, "per_class": self.per_class, **self.calibration.to_json()})

    def sentences(self, labelled: bool = True) -> list[str]:
        """Say what it was learned from, and how well it held on classes that did not calibrate.

        Of items without labels, chances are told by scores alone.
        """
        made, check = self.calibration, self.calibration.check
        found = [f"Chances are calibrated on {self.learned_from}, with {made.unknown:.0%} unknown queries."]
        if made.is_old:
            found.append(
                "An earlier version of Tophit made them, which told results and names by different rules; make them "
                "again with: tophit calibrate"
            )
        row = check.near(0.9, labelled)
        if row is not None:
            how = "" if labelled else ", by scores alone"
            found.append(
                f"Checked on classes that did not calibrate{how}: of {counted(int(row['results']), 'result')} told "
                f"{row['told']:.0%} on average, {_share(row['right'], row['low'], row['high'])} were right."
            )
        if "auroc" in check.open_set:
            value, low, high = (f"{number:.3f}" for number in check.open_set["auroc"])
            found.append(f"Known and unknown queries are told apart with an AUROC of {value} ({low} to {high}).")
        if "accuracy" in check.open_set and "unknown_told" in check.open_set:
            named, refused = (_share(*check.open_set[name]) for name in ("accuracy", "unknown_told"))
            found.append(
                f"At a cut-off of 50%, {named} of the known queries are named rightly, and {refused} of the unknown "
                "ones are told as unknown."
            )
        if made.is_rough:
            few = counted(made.classes, "class")
            found.append(f"{few} are few: chances are rough, and too high in a much larger gallery.")
        return found


def read_calibration(folder: str | Path, fingerprint: str) -> StoredCalibration | None:
    """Return the calibration in a folder; None if there is none, or if it belongs to another embedder."""
    path = Path(folder) / NAME
    if not path.is_file():
        return None
    try:
        fields: dict[str, Any] = read_small_json(path)
        if fields["format"] not in _READ:
            raise TophitError(f"{path} is of another format than this version of Tophit reads ({_FORMAT}).")
        if fields["fingerprint"] != fingerprint:
            return None
        per_class = fields["per_class"]
        return StoredCalibration(
            Calibration.from_json(fields),
            fields["fingerprint"],
            str(fields["learned_from"]),
            None if per_class is None else float(per_class),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TophitError(f"{path} is damaged: {error!r}. Make it again with: tophit calibrate") from error


def drop_stale(folder: str | Path, fingerprint: str) -> bool:
    """Remove a calibration of another embedder from a folder; return whether there was one."""
    path = Path(folder) / NAME
    if not path.is_file() or read_calibration(folder, fingerprint) is not None:
        return False
    path.unlink()
    return True


def _share(value: float, low: float, high: float) -> str:
    return f"{value:.0%} ({low:.0%} to {high:.0%})"
