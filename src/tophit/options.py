"""The words in which signatures declare options: plain types, limits and descriptions.

The registry evaluates the annotations of the package's own files with these names alone, so that it need not import the
files. ``Annotated[Positive, Doc("Scale of the similarities.")]`` is a number above 0 with its description.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

__all__ = ["Annotated", "Any", "AtLeastZero", "Count", "Doc", "Field", "Literal", "Positive", "ProxyCount"]


def Doc(description: str, **limits: Any) -> Any:  # noqa: N802  (it reads as a type in signatures)
    """Describe an option, and limit it where ``gt``, ``ge``, ``lt`` or ``le`` are given."""
    return Field(description=description, **limits)


Positive = Annotated[float, Field(gt=0)]
AtLeastZero = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


def _check_proxies(value: Any) -> Any:
    """Say once what is wrong; a union would say it for each of its types."""
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError("Expected a whole number from 1 on, or auto")
    return value


ProxyCount = Annotated[int | Literal["auto"], BeforeValidator(_check_proxies)]
