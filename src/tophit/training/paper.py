"""A paper's numbers beside a run's own: only on the paper's data, with every difference from the paper's set-up."""

from collections.abc import Iterator, Mapping
from typing import Any

from tophit.data.folders import set_read
from tophit.data.manifest import Manifest
from tophit.data.sets import has_published_counts
from tophit.recipe import Recipe, shipped_for_paper
from tophit.recipe.sections import CHOSEN, SPREAD

_SET_UP = ("precision", "embedder", "loss", "miner", "method", "batches", "memory", "augment", "optimizer", "schedule")
_SET_UP_FIELDS = ("data.boxes", "evaluation.metric", "evaluation.select_on", "evaluation.clusters", "evaluation.keep")
_NO_CHANGE = ("batches.chunk",)  # fields that change the memory a run needs, not what it learns


def beside_paper(recipe: Recipe, whole: Manifest, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the paper's metrics, as printed, each with the run's own; nothing if the recipe has none.

    ``whole`` is all data of the run. Where its data, split or protocol are not the paper's, the answer has only the
    reason (``paper_left_out``). Else ``differences`` has every other field that is not as in the built-in recipe.
    """
    paper = recipe.paper
    if not paper.metrics:
        return {}
    found = shipped_for_paper(recipe)
    name, shipped = found or (None, None)
    reason = _not_the_papers_data(recipe, shipped, whole)
    if reason:
        return {"paper_left_out": reason}
    of_sets = {f"{part}/{name}": v for part, values in result["test_sets"].items() for name, v in values.items()}
    ours = {**result["test"], **of_sets}
    metrics = {
        metric: {"paper": value, "ours": as_printed(metric, ours[metric]) if metric in ours else None}
        for metric, value in paper.metrics.items()
    }
    differences = {} if shipped is None else set_up_differences(recipe, shipped)
    where = {"title": paper.title, "table": paper.table, "row": paper.row, "recipe": name}
    return {"paper": {**where, "metrics": metrics, "differences": differences}}


def set_up_differences(recipe: Recipe, shipped: Recipe) -> dict[str, dict[str, Any]]:
    """Return the fields, by path, in which a run's set-up differs from a built-in recipe's, with both values."""
    ours, theirs = (dict(_set_up(each)) for each in (recipe, shipped))
    renamed = {part for part in CHOSEN if ours.get(f"{part}.name") != theirs.get(f"{part}.name")}
    return {
        path: {"ours": ours.get(path), "paper": theirs.get(path)}
        for path in [*ours, *(path for path in theirs if path not in ours)]
        if ours.get(path) != theirs.get(path)
        # Another loss has other fields: its name says it all.
        and (path.partition(".")[0] not in renamed or path.endswith(".name"))
    }


def as_printed(metric: str, value: float) -> float:
    """Return a metric as papers print it: in percent, but distances as they are."""
    return value if metric in SPREAD else 100 * value


def _not_the_papers_data(recipe: Recipe, shipped: Recipe | None, whole: Manifest) -> str | None:
    """Return why a run's data, split or protocol are not the paper's, or None if they are."""
    data, wanted = recipe.data, (shipped or recipe).data
    if wanted.set is None:
        return "the recipe does not name the paper's set (data.set)"
    if data.set != wanted.set or not _is_whole_set(recipe, whole):
        return f"the data are not the whole set {wanted.set}, read from its folder or a manifest with its counts"
    if shipped is None:
        return None
    fields = ["data.validation_share", "data.merge_classes"]
    fields += ["evaluation.protocol"] if any("/" in name for name in recipe.paper.measured) else []
    ours, theirs = recipe.model_dump(), shipped.model_dump()
    different = [path for path in fields if _field(ours, path) != _field(theirs, path)]
    phrases = [f"{path} is {_field(ours, path)} instead of {_field(theirs, path)}" for path in different]
    return ", ".join(phrases) or None


def _is_whole_set(recipe: Recipe, whole: Manifest) -> bool:
    data = recipe.data
    if data.partial or data.set is None:
        return False
    read = set_read(data.manifest, data.set)
    return read == data.set if read is not None else has_published_counts(data.set, whole.rows)


def _set_up(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every field that belongs to a set-up."""
    fields = recipe.model_dump(mode="json")
    for name in _SET_UP:
        yield from ((path, value) for path, value in _leaves(name, fields[name]) if path not in _NO_CHANGE)
    yield from ((path, _field(fields, path)) for path in _SET_UP_FIELDS)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _leaves(f"{path}.{name}", below)
    else:
        yield path, value


def _field(fields: Mapping[str, Any], path: str) -> Any:
    section, _, name = path.partition(".")
    return fields[section][name]
