"""What the functions take: a model in any form, a recipe as keywords, and whether to show progress."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Union

from tophit.progress import View

if TYPE_CHECKING:
    from tophit.models import Embedder
    from tophit.recipe import Recipe
    from tophit.training import TrainingResult

Model = Union[str, Path, "TrainingResult", "Embedder"]
"""A run, an embedder's folder, a backbone's name, a result of ``train``, or an embedder itself."""
Chosen = str | Mapping[str, Any]


class RecipeFields(TypedDict, total=False):
    """The sections of a recipe, as keyword arguments; a section chosen by name may be only its name."""

    seed: int
    device: str
    precision: str
    log: Sequence[str]
    embedder: Mapping[str, Any]
    loss: Chosen
    miner: Chosen
    method: Chosen
    batches: Chosen
    memory: Mapping[str, Any]
    consistency: Mapping[str, Any]
    words: Mapping[str, Any]
    augment: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    paper: Mapping[str, Any]


def recipe_from(
    data: str | Path | Mapping[str, Any] | None,
    recipe: str | Path | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> tuple["Recipe", set[str]]:
    """Return the recipe of a call, and the paths of the fields that the call set."""
    from tophit.recipe import read_recipe
    from tophit.recipe.reading import paths_in

    changes = plain(fields)
    if isinstance(data, Mapping):
        changes["data"], data = plain(data), None
    chosen = read_recipe(recipe, data=None if data is None else str(data), fields=changes)
    return chosen, paths_in(changes)


def model_name(model: Model) -> str:
    """Return how a user names a model on the command line; for an embedder, words that are no folder."""
    if isinstance(model, str | Path):
        return str(model)
    return str(getattr(model, "folder", "the embedder"))


def check_named(*models: Model | None) -> None:
    """Refuse names that stand for no model, before torch is imported, which takes long."""
    from tophit.models.named import check_model

    for each in models:
        if isinstance(each, str | Path):
            check_model(each)


def embedder_of(model: Model) -> "Embedder":
    """Return the embedder of a model."""
    from tophit.models import Embedder, load

    return model if isinstance(model, Embedder) else load(model_name(model))


def view_of(progress: bool | View) -> View:
    """Return what shows progress: nothing, bars and sentences, or the view that was given."""
    if isinstance(progress, View):
        return progress
    if not progress:
        return View()
    from rich.console import Console

    from tophit.progress import TerminalView

    return TerminalView(Console())


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested fields as a recipe file could hold them: paths as text."""
    return {
        key: plain(value) if isinstance(value, Mapping) else str(value) if isinstance(value, Path) else value
        for key, value in fields.items()
    }
