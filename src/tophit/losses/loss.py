"""The base of every loss: a module that declares its abilities and checks its arguments by its signature."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar

import torch
from pydantic import ConfigDict, ValidationError, validate_call
from torch import nn

P = ParamSpec("P")
T = TypeVar("T")
Restriction = Literal["triplets", "pairs", "positives"]


class Loss(nn.Module):
    """A loss of embeddings and labels. Its class declares its abilities, so no other module needs a list of losses.

    Arguments of a subclass's constructor are checked by their annotations, which also define a recipe's section.
    """

    takes_memory: ClassVar[bool] = False
    """It can compare a batch with the embeddings of earlier batches, given only ``ref_emb`` and ``ref_labels``."""
    takes_triplets: ClassVar[bool] = False
    """It accepts chosen triplets, as generation needs."""
    restriction: ClassVar[Restriction | None] = None
    """How a projection restricts it to its representatives; None if it sees the whole batch."""
    takes_sets: ClassVar[bool] = False
    """It accepts several labels for each image: integers (N, K), padded with -1."""
    takes_paths: ClassVar[bool] = False
    """It accepts paths in a hierarchy: integers (N, L), from the coarsest level to the finest."""
    compares_images: ClassVar[bool] = True
    """It compares images of one class with each other, so a batch needs two per class; proxy losses don't."""

    _used: torch.Tensor | int | None = None

    @property
    def used(self) -> int | None:
        """How many pairs or triplets the last call compared; None if the loss does not count them."""
        return None if self._used is None else int(self._used)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__ = _checked(cls.__init__)


def _checked(make: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that rejects arguments its annotations don't allow."""
    validated = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(make)

    @wraps(make)
    def checked(*args: Any, **kwargs: Any) -> None:
        try:
            validated(*args, **kwargs)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = problem["loc"][0]
            name = list(signature(make).parameters)[place] if isinstance(place, int) else place
            wrong = problem["msg"].replace("Input should be", "must be").replace("Value error, ", "")
            raise ValueError(f"{name} {wrong}, got {problem['input']!r}") from None

    return checked


Ability = Literal["takes_memory", "takes_triplets", "takes_sets", "takes_paths"]
_SHOWN_BY = {"takes_memory": "ref_emb", "takes_triplets": "indices_tuple"}


def can(loss: type[nn.Module], ability: Ability) -> bool:
    """Return whether a loss class has an ability: as it declares or, for another library's, as its arguments show."""
    said = getattr(loss, ability, None)
    if said is not None:
        return bool(said)
    return _SHOWN_BY.get(ability) in signature(loss.forward).parameters


def eager(function: Callable[P, T]) -> Callable[P, T]:
    """Keep a function out of compiled graphs: shapes inside it depend on the data, such as the number of positives."""
    return torch.compiler.disable(function)  # type: ignore[return-value]
