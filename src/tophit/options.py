"""The vocabulary with which signatures declare options: plain types, limits and descriptions.

The registry evaluates the annotations in the package's own files with only these names, so it need not import the
files. ``Annotated[Positive, Doc("Scale of the similarities.")]`` is a number above 0 with its description.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

__all__ = [
    "Annotated",
    "Any",
    "AtLeastZero",
    "ClassMining",
    "Count",
    "Doc",
    "Field",
    "Literal",
    "LossOrSame",
    "OnUnitVectors",
    "Positive",
    "ProxyCount",
    "Registered",
    "Regularizer",
    "RestOf",
    "Softness",
]


def Doc(description: str, **limits: Any) -> Any:  # noqa: N802  (it reads as a type in signatures)
    """Describe an option, and limit it if ``gt``, ``ge``, ``lt`` or ``le`` is given."""
    return Field(description=description, **limits)


Positive = Annotated[float, Field(gt=0)]
AtLeastZero = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
OnUnitVectors = Annotated[bool, Field(description="Normalise embeddings to unit length.")]
Softness = Annotated[float, Field(gt=0, description="Softness of the maximum over a class's proxies.")]
Regularizer = Annotated[float, Field(ge=0, description="Weight of the distances between a class's proxies.")]


def _check_proxies(value: Any) -> Any:
    """Report what is wrong once; a union would report it for each of its types."""
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError("must be a whole number of at least 1, or auto")
    return value


def _check_class_mining(value: Any) -> Any:
    """Report what is wrong once, as above."""
    if value not in (True, False, "pool", "seeds", "chain"):
        raise ValueError("must be true, false, pool, seeds or chain")
    return value


def RestOf(other: str, factor: float, why: str) -> AfterValidator:  # noqa: N802
    """Reject a share that with ``factor`` times another option, declared before it, exceeds 1."""

    def check(value: float, info: ValidationInfo) -> float:
        if factor * info.data.get(other, 0) + value > 1 + 1e-9:
            raise ValueError(f"{factor} {other} + {info.field_name} must be at most 1, since {why}")
        return value

    return AfterValidator(check)


@dataclass(frozen=True)
class Registered:
    """Marks an option that names something registered; ``also`` are other words it accepts."""

    kind: str
    also: tuple[str, ...] = ()


LossOrSame = Annotated[str, Registered("loss", ("same",))]
ClassMining = Annotated[bool | Literal["pool", "seeds", "chain"], BeforeValidator(_check_class_mining)]
ProxyCount = Annotated[
    int | Literal["auto"],
    BeforeValidator(_check_proxies),
    Field(description="Proxies of each class, or auto: start with 10 and let the regularizer merge them."),
]
