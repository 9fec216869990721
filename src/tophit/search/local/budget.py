"""The options of a local index, among them the budget within which its kind of index is chosen."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tophit.errors import UsageError
from tophit.search.backend import check_kind

BUILD_SECONDS = 600.0
_BYTES = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True)
class LocalOptions:
    """The options of a local index, which apply when it is compacted.

    ``kind``: the kind of index, or auto to choose it by measurement. ``recall``: the recall@10 to reach.
    ``exact_below``: with fewer vectors it is exact. ``memory`` ("2GB", or bytes): what the index may hold in memory,
    half of the machine's if not given. ``build`` ("5min", or seconds): how long choosing and building may take.
    """

    kind: str = "auto"
    recall: float = 0.98
    exact_below: int = 50_000
    memory: str | float | None = None
    build: str | float | None = None

    def __post_init__(self) -> None:
        check_kind("local", self.kind)
        if not 0 < self.recall <= 1:
            raise UsageError(f"recall is a share above 0 and up to 1, not {self.recall}.")
        check_budget(self.memory, self.build)

    @property
    def most_bytes(self) -> float:
        """What the index may hold in memory."""
        return _machine_bytes() / 2 if self.memory is None else _quantity("memory", self.memory, _BYTES, "2GB")

    @property
    def most_seconds(self) -> float:
        """How long choosing and building may take."""
        return BUILD_SECONDS if self.build is None else _quantity("build", self.build, _SECONDS, "5min")

    def asked(self) -> dict[str, Any]:
        """Return what the choice of a kind depends on."""
        return {"kind": self.kind, "memory": self.memory, "build": self.build}


def check_budget(memory: str | float | None, build: str | float | None) -> None:
    """Refuse a budget that can't be read."""
    if memory is not None:
        _quantity("memory", memory, _BYTES, "2GB")
    if build is not None:
        _quantity("build", build, _SECONDS, "5min")


def checked_options(options: Mapping[str, Any]) -> LocalOptions:
    """Return options given by name; an unknown one is an error."""
    known = [field.name for field in fields(LocalOptions)]
    for name in options:
        if name not in known:
            raise UsageError(f"The local backend has no option '{name}'; choices: {', '.join(known)}.")
    return LocalOptions(**options)


def _quantity(name: str, given: str | float, units: Mapping[str, float], example: str) -> float:
    """Read a number with its unit, or a plain number."""
    value = -1.0
    if isinstance(given, str):
        match = _QUANTITY.fullmatch(given)
        factors = {unit.lower(): factor for unit, factor in units.items()}
        if match and match.group(2).lower() in factors:
            value = float(match.group(1)) * factors[match.group(2).lower()]
    elif not isinstance(given, bool):
        value = float(given)
    if not 0 < value < float("inf"):
        raise UsageError(f"{name} is a number with its unit ({', '.join(units)}), such as {example}, not {given!r}.")
    return value


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
