"""Which losses, methods, miners and samplers take which kind of labels; what can't be is refused before training."""

from tophit.data.label_kinds import LABEL_COLUMNS, LabelKind
from tophit.errors import UsageError
from tophit.losses.loss import can
from tophit.methods import Method
from tophit.recipe import Recipe
from tophit.registry import entries, find
from tophit.training.building import loss_class, losses_with


def sees_paths(recipe: Recipe) -> bool:
    """Return whether the loss gets all levels of a hierarchy; otherwise it gets the leaves as classes."""
    return _method(recipe).takes_sets and can(loss_class(recipe), "takes_paths")


def check_labels(recipe: Recipe, kind: LabelKind) -> str | None:
    """Raise if labels of this kind can't be learned from as the recipe says; return a note if a loss ignores levels."""
    if recipe.batches.sampler == "siblings" and kind != "path":
        raise UsageError(
            "batches.sampler: siblings needs labels that are paths (the column label_path, or data.levels); use "
            "balanced or random."
        )
    if recipe.batches.sampler == "balanced-labels" and kind != "several":
        raise UsageError(
            "batches.sampler: balanced-labels needs several labels for each image (the column labels); use balanced."
        )
    if kind == "several":
        _check_several(recipe)
    if kind == "path" and sees_paths(recipe) and recipe.miner.name != "none":
        raise UsageError(
            f"miner.name: the loss {recipe.loss.name} compares all levels of a hierarchy, and the miner "
            f"{recipe.miner.name} only classes; set 'miner: none'."
        )
    if kind == "path" and not sees_paths(recipe):
        seeing = ", ".join(losses_with("takes_paths"))
        return (
            f"The loss {recipe.loss.name} learns the finest level of the hierarchy only, as classes. These look at all "
            f"levels: {seeing}."
        )
    return None


def _check_several(recipe: Recipe) -> None:
    """Raise if the method, the miner or the loss compares one label of each image."""
    column, name = LABEL_COLUMNS["several"], recipe.loss.name
    if not _method(recipe).takes_sets:
        able = ", ".join(entry.name for entry in entries("method") if entry.load().takes_sets)
        raise UsageError(
            f"method.name: the method {recipe.method.name} needs one class for each image, and these have several "
            f"(the column {column}); use {able}."
        )
    if recipe.miner.name != "none":
        raise UsageError(
            f"miner.name: the miner {recipe.miner.name} compares one label of each image, and these have several (the "
            f"column {column}); set 'miner: none'."
        )
    if not can(loss_class(recipe), "takes_sets"):
        raise UsageError(
            f"loss.name: the loss {name} is not defined for several labels for each image (the column {column}): it "
            f"needs classes that don't overlap. Use one of {', '.join(losses_with('takes_sets'))}."
        )


def _method(recipe: Recipe) -> type[Method]:
    return find("method", recipe.method.name).load()
