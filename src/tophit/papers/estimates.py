"""How long a table would take on this machine: from two measured steps of each network, at a few images."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tophit.data.sets import set_named
from tophit.files import cache_folder, write_json
from tophit.papers.entries import Entry, columns_of, entry_names, find_entry, rows_of
from tophit.progress import Progress
from tophit.recipe import Recipe, read_recipe

_IMAGES = 4  # in a measured step; BatchNorm needs two
_STEPS = 2


@dataclass(frozen=True)
class Estimate:
    """A table or figure on one set: its size, and the hours that one seed of all trained rows takes."""

    name: str
    set_name: str
    rows: int
    quoted: int
    columns: tuple[str, ...]
    hours: float
    caption: str


def estimates(progress: Progress) -> Iterator[Estimate]:
    """Yield every table and figure with each of its sets; what was measured is kept for the next time."""
    known = _read()
    wanted = {_network(recipe) for _, _, recipes in _all() for recipe in recipes}
    for network in progress(sorted(wanted - set(known)), len(wanted - set(known))):
        known[network] = _seconds_per_image(*network.split(" at "))
        _write(known)
    for name, set_name, recipes in _all():
        entry = find_entry(name)
        hours = sum(_images(recipe, set_name) * known[_network(recipe)] for recipe in recipes) / 3600
        quoted = sum(isinstance(row, dict) for row in entry.rows)
        columns = columns_of(entry, set_name) if set_name else ()
        yield Estimate(name, set_name, len(recipes), quoted, columns, hours, entry.caption)


def _all() -> Iterator[tuple[str, str, list[Recipe]]]:
    for name in entry_names():
        entry = find_entry(name)
        for set_name in entry.sets or [""]:
            yield name, set_name, _recipes(entry, set_name) if set_name else []


def _recipes(entry: Entry, set_name: str) -> list[Recipe]:
    return [_recipe(row.recipe) for row in rows_of(entry, set_name) if row.recipe is not None]


@cache
def _recipe(name: str) -> Recipe:
    return read_recipe(name, data="unused")


def _network(recipe: Recipe) -> str:
    return f"{recipe.embedder.backbone} at {recipe.embedder.size}"


def _images(recipe: Recipe, set_name: str) -> float:
    """Return the images of a run: those it learns from, and a third of the work for each one it is measured on."""
    counts = {count.part: count.images for count in set_named(set_name).counts}
    train = counts["train"]
    test = sum(images for part, images in counts.items() if part != "train") or train
    schedule, evaluation = recipe.schedule, recipe.evaluation
    measured = 1 + (schedule.epochs // evaluation.every if evaluation.select_on == "test" else 0)
    return schedule.epochs * train + measured * test / 3


def _seconds_per_image(backbone: str, size: str) -> float:
    """Return the seconds that a training step takes for an image: forward, backward, with random weights."""
    import torch

    from tophit.models.embedder import build_embedder

    embedder = build_embedder(backbone, "random", "average", 3.0, 64, int(size), 1.0, False)
    images = torch.randn(_IMAGES, 3, int(size), int(size))
    embedder(images).sum().backward()  # the first step also sets up
    started = time.perf_counter()
    for _ in range(_STEPS):
        embedder(images).sum().backward()
    return (time.perf_counter() - started) / (_STEPS * _IMAGES)


def _place() -> Path:
    return cache_folder() / "paper_steps.json"


def _read() -> dict[str, float]:
    try:
        found: Any = json.loads(_place().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): float(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _write(known: dict[str, float]) -> None:
    _place().parent.mkdir(parents=True, exist_ok=True)
    write_json(_place(), known)
