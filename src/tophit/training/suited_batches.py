"""Batches that suit the loss and the method: balanced where images of one class are compared with each other."""

from collections import Counter
from collections.abc import Hashable, Sequence, Set
from typing import TYPE_CHECKING, Any

from tophit.recipe import Recipe
from tophit.recipe.choosing import Peer, section_of
from tophit.registry import find
from tophit.signatures import member_at
from tophit.wording import counted

if TYPE_CHECKING:
    from tophit.methods import Method

_BALANCED = "balanced"


def suit_batches(recipe: Recipe, said: Set[str]) -> tuple[Recipe, str | None]:
    """Return a recipe whose batches suit the loss or method that the user chose, and a note if that changed them.

    ``said`` are the paths of the fields that the user set, such as ``loss`` or ``loss.name``. A built-in recipe's
    batches suit its own loss. A sampler that the user chose is kept.
    """
    if recipe.batches.sampler == _BALANCED or said & {"batches", "batches.sampler"}:
        return recipe, None
    reasons = []
    if said & {"loss", "loss.name"} and not isinstance(recipe.loss, Peer) and _compares_images(recipe.loss.name):
        reasons.append(f"the loss {recipe.loss.name} compares images of one class with each other")
    if said & {"method", "method.name"} and _makes_batches(recipe.method.name):
        reasons.append(f"the method {recipe.method.name} makes batches of classes x per_class images")
    if not reasons:
        return recipe, None
    fields = recipe.batches.model_dump() | {"sampler": _BALANCED}
    batches: Any = section_of("sampler", _BALANCED).model_validate(
        {name: value for name, value in fields.items() if name in section_of("sampler", _BALANCED).model_fields}
    )
    note = (
        f"Batches are balanced ({batches.classes} classes x {batches.per_class} images), not "
        f"{recipe.batches.sampler}: {' and '.join(reasons)}. To choose yourself: --set batches.sampler=..."
    )
    return recipe.model_copy(update={"batches": batches}), note


def size_note(recipe: Recipe, labels: Sequence[Hashable]) -> str | None:
    """Return a note if batches are larger than the training data, which ``labels`` (images,) describe, else None."""
    batches, sizes = recipe.batches, Counter(labels)
    classes, largest = len(sizes), max(sizes.values())
    if batches.sampler == "random" and batches.size > len(labels):
        return (
            f"A batch is all {len(labels):,} training images: batches.size, {batches.size:,}, is more than there are."
        )
    too_large = batches.classes > classes or batches.per_class > largest
    if batches.sampler != _BALANCED or not too_large:
        return None
    return (
        f"A batch has at most {min(batches.classes, classes)} classes x {min(batches.per_class, largest)} images, not "
        f"{batches.classes} x {batches.per_class}: there are {counted(classes, 'training class')}, the largest with "
        f"{counted(largest, 'image')}."
    )


def makes_batches(method: "type[Method]") -> bool:
    """Return whether a method brings its own sampler."""
    from tophit.methods import Method  # here, because it imports torch

    return method.make_sampler.__func__ is not Method.make_sampler.__func__  # type: ignore[attr-defined]


def _makes_batches(method: str) -> bool:
    """Return the same of a method's name, without importing those of the package."""
    entry = find("method", method)
    found = member_at(entry.module, entry.attribute, "make_sampler")
    return found is not None and found.owner != "Method"


def _compares_images(loss: str) -> bool:
    entry = find("loss", loss)
    found = member_at(entry.module, entry.attribute, "compares_images")
    return found is not None and bool(found.value)
