"""What every loss is: a module that says what it can do and checks its arguments by its own signature."""

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
    """A loss of embeddings and labels. Its class says what it can do, so that nobody else keeps a list of losses.

    Arguments of a subclass's constructor are checked by their annotations, the same that a recipe's section is made of.
    """

    takes_memory: ClassVar[bool] = False
    """It compares a batch with the embeddings of batches before it, by ``ref_emb`` and ``ref_labels`` alone."""
    takes_triplets: ClassVar[bool] = False
    """It can be fed chosen triplets, as generation does."""
    restriction: ClassVar[Restriction | None] = None
    """How a projection restricts it to its representatives; None: it sees the whole batch."""
    compares_images: ClassVar[bool] = True
    """It compares images of one class with each other, so a batch needs two of a class; proxies do without."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__ = _checked(cls.__init__)


def _checked(make: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that refuses arguments outside of what its annotations allow."""
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


def can(loss: type[nn.Module], ability: Literal["takes_memory", "takes_triplets"]) -> bool:
    """Say what a class of losses can do: what it says itself, or, in another library, what its arguments tell."""
    said = getattr(loss, ability, None)
    if said is not None:
        return bool(said)
    argument = {"takes_memory": "ref_emb", "takes_triplets": "indices_tuple"}[ability]
    return argument in signature(loss.forward).parameters


def eager(function: Callable[P, T]) -> Callable[P, T]:
    """Keep a function out of compiled graphs: the shapes inside it depend on the data, as the number of positives."""
    return torch.compiler.disable(function)  # type: ignore[return-value]
