"""What each table and figure of the papers consists of: its sets, rows and columns, and how it is drawn.

A row is a built-in recipe, named by its variant, which also holds the paper's numbers; or a row that is only quoted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from tophit.errors import UsageError
from tophit.recipe import Section, read_recipe
from tophit.registry import did_you_mean

_SHIPPED = files("tophit.papers") / "shipped"
_ORDER = ("topk", "pnp", "profs", "mpa", "thsg")
Draws = Literal["table", "curves", "lists", "map", "over", "bars", "derivatives", "relation", "toy", "metrics"]
COMPUTED = ("derivatives", "relation", "toy", "metrics")
"""What follows from the equations alone: no data, no runs."""


class Series(Section):
    """A curve over some setting: each point is another variant, or a change of one row."""

    name: str = Field(description="Its name in the legend.")
    axis: str = Field(description="What is varied.")
    row: str = Field(default="", description="The variant that the points change.")
    points: dict[float, str | dict[str, Any]] = Field(description="A variant, or changed fields, by the varied value.")


class Entry(Section):
    """A table or a figure of a paper."""

    caption: str = Field(description="What it shows.")
    draws: Draws = Field(default="table", description="Its kind.")
    columns: dict[str, tuple[str, ...]] = Field(default={}, description="The metrics, by set; or the same for all.")
    sets: dict[str, str] = Field(default={}, description="The built-in recipe of each set.")
    rows: tuple[str | dict[str, list[float | None]], ...] = Field(
        default=(), description="Variants of the set's recipe ('': the recipe itself), or a quoted row and its numbers."
    )
    series: tuple[Series, ...] = Field(default=(), description="The curves of a figure over some setting.")
    change: dict[str, Any] = Field(default={}, description="Fields of the recipes that this entry needs changed.")
    note: str = Field(default="", description="What a reader must know besides.")

    @model_validator(mode="before")
    @classmethod
    def _same_columns(cls, values: dict[str, Any]) -> dict[str, Any]:
        if isinstance(values.get("columns"), list):
            return {**values, "columns": dict.fromkeys(values.get("sets", {}), values["columns"])}
        return values

    @field_validator("rows")
    @classmethod
    def _one_name(cls, rows: Any) -> Any:
        if any(isinstance(row, dict) and len(row) != 1 for row in rows):
            raise ValueError("a quoted row has one name")
        return rows

    @property
    def is_computed(self) -> bool:
        """Whether it follows from the equations, without data."""
        return self.draws in COMPUTED


@dataclass(frozen=True)
class PaperRow:
    """A row of a table or a point of a curve: what is trained, or what is only quoted, and the paper's numbers."""

    name: str
    printed: dict[str, float]  # as printed: in percent, but distances as they are
    recipe: str | None = None  # None: quoted
    change: dict[str, Any] = field(default_factory=dict)
    series: str = ""
    axis: str = ""
    x: float | None = None


@cache
def _papers() -> dict[str, dict[str, Any]]:
    return {name: yaml.safe_load((_SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")) for name in _ORDER}


def entry_names() -> list[str]:
    """Return the names of all tables and figures, such as ``topk/table-1``."""
    return [f"{paper}/{name}" for paper, content in _papers().items() for name in content["entries"]]


@cache
def find_entry(name: str) -> Entry:
    """Return a table or figure by its name."""
    known = entry_names()
    if name not in known:
        raise UsageError(
            f"There is no table or figure '{name}'.{did_you_mean(name, known)} 'tophit paper --list' lists them."
        )
    paper, _, rest = name.partition("/")
    return Entry.model_validate(_papers()[paper]["entries"][rest])


def paper_title(name: str) -> str:
    """Return the title of the paper of a table or figure."""
    return _papers()[name.partition("/")[0]]["title"]


def columns_of(entry: Entry, set_name: str) -> tuple[str, ...]:
    """Return the columns of a table on one set."""
    return entry.columns[set_name]


def rows_of(entry: Entry, set_name: str) -> list[PaperRow]:
    """Return the rows of a table, or the points of a figure's curves, on one set, in the paper's order."""
    return list(_rows(entry, set_name))


def _rows(entry: Entry, set_name: str) -> Iterator[PaperRow]:
    base, columns = entry.sets[set_name], columns_of(entry, set_name)
    for row in entry.rows:
        if isinstance(row, dict):
            ((name, numbers),) = row.items()
            pairs = zip(columns, numbers, strict=False)  # a row may end early
            yield PaperRow(name, {column: value for column, value in pairs if value is not None})
        else:
            yield _trained(base, row, columns, entry.change)
    for one in entry.series:
        for x, point in one.points.items():
            variant, change = (point, {}) if isinstance(point, str) else (one.row, point)
            made = _trained(base, variant, columns, {**entry.change, **change})
            name = f"{one.name}, {one.axis} {x:g}"
            printed = made.printed if isinstance(point, str) else {}
            yield PaperRow(name, printed, made.recipe, made.change, one.name, one.axis, x)


def _trained(base: str, variant: str, columns: tuple[str, ...], change: dict[str, Any]) -> PaperRow:
    recipe = f"{base}-{variant}" if variant else base
    paper = read_recipe(recipe, data="unused").paper
    printed = {column: paper.metrics[column] for column in columns if column in paper.metrics}
    return PaperRow(paper.row, printed, recipe, change)
