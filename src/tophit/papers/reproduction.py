"""A table or figure of a paper on one set: which runs it needs, and the folder that keeps them.

It is a comparison whose candidates are whole recipes, so it continues, and workers share it, as comparisons do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tophit.comparing.plan import Plan, make_plan
from tophit.comparing.store import Store
from tophit.data.folders import set_read, whole_path
from tophit.data.sets import set_of_folder
from tophit.errors import UsageError
from tophit.files import write_json
from tophit.papers.entries import Entry, PaperRow, columns_of, find_entry, rows_of
from tophit.recipe import Recipe, apply_overrides, merged, read_recipe
from tophit.recipe.sections import CLUSTERING, SPREAD

_NEEDS_RUNS = ("curves", "lists", "map")  # drawn from the embedders and logs of runs, not only from their results


@dataclass(frozen=True)
class Choice:
    """What a user changes to make a table affordable."""

    rows: Sequence[str] = ()  # names of rows; none: all
    seeds: int = 1
    epochs: int | None = None
    overrides: Sequence[str] = ()  # fields such as embedder.size=112


@dataclass(frozen=True)
class Reproduction:
    """An entry on one set, in its folder."""

    name: str
    set_name: str
    store: Store
    rows: list[PaperRow] = field(repr=False)

    @property
    def entry(self) -> Entry:
        """The table or figure."""
        return find_entry(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Its metrics."""
        return columns_of(self.entry, self.set_name)


def begin(name: str, data: str, out: Path, choice: Choice) -> Reproduction:
    """Begin a table or figure in a folder, or continue the one that is there."""
    entry = find_entry(name)
    set_name = _set_of(name, entry, data)
    rows = _chosen(rows_of(entry, set_name), choice.rows)
    store = Store(out)
    _check_folder(out, name, set_name)
    store.begin(plan_of(name, set_name, data, rows, choice))
    write_json(_about(out), {"name": name, "set": set_name, "rows": [row.name for row in rows]})
    return Reproduction(name, set_name, store, rows)


def reopen(folder: Path) -> Reproduction:
    """Open the table or figure in a folder."""
    path = _about(folder)
    if not path.is_file():
        raise UsageError(f"There is no table or figure of a paper in {folder} (no {path.name} there).")
    about = json.loads(path.read_text(encoding="utf-8"))
    rows = rows_of(find_entry(about["name"]), about["set"])
    return Reproduction(about["name"], about["set"], Store(folder), [row for row in rows if row.name in about["rows"]])


def is_reproduction(folder: str | Path) -> bool:
    """Say whether a folder holds a table or figure of a paper."""
    return _about(Path(folder)).is_file()


def plan_of(name: str, set_name: str, data: str, rows: Sequence[PaperRow], choice: Choice) -> Plan:
    """Return the comparison whose candidates are the rows that are trained."""
    entry = find_entry(name)
    columns = columns_of(entry, set_name)
    kept = [each for each in columns if "/" not in each and each not in (*CLUSTERING, *SPREAD)] or ["recall@1"]
    common = apply_overrides({"paper": {"columns": list(columns)}}, choice.overrides)
    given = common.pop("data", {})
    fields = {
        "title": f"{name} on {set_name}",
        "data": {**given, "manifest": whole_path(data)},
        "common": common,
        "budget": {"seeds": choice.seeds},
        "metric": kept[0],
        "metrics": kept,
        "keep_runs": entry.draws in _NEEDS_RUNS,
        "candidates": {
            row.name: {"recipe": row.recipe, "whole": True, "change": _change(row, choice.epochs, choice.overrides)}
            for row in rows
            if row.recipe is not None
        },
    }
    return make_plan(fields, name)


def _change(row: PaperRow, epochs: int | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Return what changes in a row's recipe: what the entry needs, and a shorter schedule of the same shape."""
    if epochs is None:
        return row.change
    recipe = read_recipe(str(row.recipe), overrides, data="unused")
    return merged(row.change, {"schedule": shortened(recipe, epochs), "evaluation": _evaluations(recipe, row, epochs)})


def shortened(recipe: Recipe, epochs: int) -> dict[str, Any]:
    """Return a schedule of so many epochs whose rates fall at the same shares of the way.

    >>> shortened(read_recipe("topk/cub200", data="unused"), 8)
    {'epochs': 8, 'milestones': [1, 2, 7]}
    """
    schedule = recipe.schedule

    def scaled(epoch: int) -> int:
        return max(1, round(epoch * epochs / schedule.epochs))

    falls = {
        "multi-step": {"milestones": [scaled(each) for each in schedule.milestones]},
        "step": {"step_epochs": scaled(schedule.step_epochs)},
    }
    return {"epochs": epochs, **falls.get(schedule.decay, {})}


def _evaluations(recipe: Recipe, row: PaperRow, epochs: int) -> dict[str, int]:
    """Return how often a shorter run is measured: as many times as the whole one, but at most once an epoch."""
    every = row.change.get("evaluation", {}).get("every", recipe.evaluation.every)
    return {"every": max(1, round(every * epochs / recipe.schedule.epochs))}


def _chosen(rows: list[PaperRow], names: Sequence[str]) -> list[PaperRow]:
    """Return the rows of these names, which are the paper's, or the variants of recipes."""
    if not names:
        return rows
    known = {key: row for row in rows for key in (row.name.lower(), *([row.recipe] if row.recipe else []))}
    missing = [name for name in names if name.lower() not in known]
    if missing:
        listed = "; ".join(row.name for row in rows)
        raise UsageError(f"There is no row '{missing[0]}'. The rows are: {listed}.")
    wanted = {id(known[name.lower()]) for name in names}
    chosen = [row for row in rows if id(row) in wanted]
    if not any(row.recipe for row in chosen):
        raise UsageError("The rows you chose are only quoted from the paper; choose one that can be trained.")
    return chosen


def _set_of(name: str, entry: Entry, data: str) -> str:
    """Return the set that data are: as written (cub200:FOLDER), as its files say, or the only one of the entry."""
    found = set_read(data) or set_of_folder(data, list(entry.sets))
    if found is None and len(entry.sets) == 1:
        return next(iter(entry.sets))
    if found not in entry.sets:
        what = "can't be told from its files" if found is None else f"is {found}"
        raise UsageError(
            f"{name} is about {', '.join(entry.sets)}, but the set in {data} {what}. Name it: "
            f"--data {next(iter(entry.sets))}:FOLDER."
        )
    return found


def _check_folder(out: Path, name: str, set_name: str) -> None:
    path = _about(out)
    if not path.is_file():
        return
    about: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if (about["name"], about["set"]) != (name, set_name):
        raise UsageError(f"{out} holds {about['name']} on {about['set']}; name another folder.")


def _about(folder: Path) -> Path:
    return folder / "paper.json"
