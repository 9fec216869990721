"""What clients may ask, checked by name and kind; how much they may ask is in :mod:`tophit.serve.limits`."""

import json
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tophit.reranking import AlphaExpansion, KReciprocal, Reranking, parse_reranking
from tophit.search.filters import parse_filter
from tophit.serve.decode_pool import FractionBox
from tophit.serve.limits import Limits
from tophit.serve.problems import Problem

RESERVED = ("path", "box")
"""Metadata that tell where a picture is: never shown, filtered by, or taken from a client."""
Kind = TypeVar("Kind", bound="_Request")
Id = Annotated[str, Field(min_length=1, max_length=1024)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SearchRequest(_Request):
    """What to search by, and how. Ids, uploads, vectors and files are a query each, or one query ``together``."""

    ids: list[Id] = Field([], description="Items of the index; none finds itself.", examples=[["cats/1.jpg"]])
    uploads: list[Id] = Field([], description="Pictures of earlier searches, by the name that the answer gave them.")
    vectors: list[list[float]] = Field([], description="Vectors of the model's.")
    box: FractionBox | None = Field(
        None,
        description="The part of the only id, upload or file to search by: x1, y1, x2, y2 as fractions of the upright "
        "picture's sides.",
        examples=[[0.1, 0.2, 0.6, 0.9]],
    )
    like: list[Id] = Field([], description="More like these items. Makes one query of everything.")
    unlike: list[Id] = Field([], description="Less like these items.")
    together: bool = Field(False, description="Make one query of everything.")
    k: int = Field(10, ge=1, description="How many results.")
    where: dict[str, Any] | None = Field(
        None,
        description="A filter: a field equals a value, is any of a list, or is compared: eq ne in lt lte gt gte.",
        examples=[{"label": ["cat", "dog"], "price": {"lt": 10}}],
    )
    rerank: list[str] = Field(
        [], max_length=2, description="alpha-qe, k-reciprocal, with settings as in alpha-qe:alpha=2."
    )

    @model_validator(mode="after")
    def _box_is_inside(self) -> Self:
        if self.box is not None:
            x1, y1, x2, y2 = self.box
            if not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
                raise ValueError("a box has 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1")
        return self

    @property
    def is_one_query(self) -> bool:
        """Whether everything is one query."""
        return self.together or bool(self.like or self.unlike)

    def check(self, limits: Limits, files: int) -> list[Reranking]:
        """Refuse what is too much or does not go together; return the steps of re-ranking."""
        pictures = files + len(self.uploads)
        sources = pictures + len(self.ids) + len(self.vectors)
        if not sources and not self.like:
            raise Problem(422, "Say what to search by: files, ids, uploads, vectors, or like.")
        if pictures > limits.files:
            raise Problem(422, f"{pictures} images are more than {limits.files}, the most for one request.")
        examples = len(self.like) + len(self.unlike)
        if len(self.ids) + len(self.vectors) + examples > limits.vectors:
            raise Problem(422, f"More than {limits.vectors} ids and vectors are too many for one request.")
        if self.k > limits.k:
            raise Problem(422, f"k is at most {limits.k}, not {self.k}.")
        if self.box is not None and (sources != 1 or self.vectors):
            raise Problem(422, "A box is cut out of one picture: give one file, upload or id.")
        for condition in parse_filter(self.where):
            if condition.field in RESERVED:  # else paths could be guessed letter by letter
                raise Problem(422, f"filter.{condition.field}: this field is the server's own.")
        steps = [parse_reranking(text) for text in self.rerank]
        widest = max([self.k, *map(_width, steps)])
        if widest > limits.k:
            raise Problem(422, f"Re-ranking looks at {widest} results; {limits.k} are the most.")
        queries = 1 if self.is_one_query else sources
        if queries * widest > limits.results:
            raise Problem(422, f"{queries} queries of {widest} results are more than {limits.results:,} in all.")
        return steps


class NewItem(_Request):
    """An item to add, or to replace the one of the same id."""

    id: Id = Field(examples=["shoes/17"])
    vector: list[float] | None = Field(None, description="A vector of the model's; without it, a file must be sent.")
    metadata: dict[str, Any] = Field({}, examples=[{"label": "boot", "price": 80}])


class UpsertRequest(_Request):
    """Items; with files, one file an item in the same order."""

    items: list[NewItem] = Field(min_length=1)

    def check(self, limits: Limits, files: int) -> None:
        """Refuse what is too much or has no picture."""
        if len(self.items) > limits.upsert:
            raise Problem(422, f"{len(self.items)} items are more than {limits.upsert}, the most for one call.")
        if files > limits.files:
            raise Problem(422, f"{files} images are more than {limits.files}, the most for one request.")
        if files and files != len(self.items):
            raise Problem(422, f"{files} files and {len(self.items)} items must be equally many.")
        for number, item in enumerate(self.items):
            if bool(files) == (item.vector is not None):
                raise Problem(422, f"items[{number}] needs a file or a vector, one of the two.")
            if taken := [name for name in RESERVED if name in item.metadata]:
                raise Problem(422, f"items[{number}]: the field '{taken[0]}' is the server's own.")


class DeleteRequest(_Request):
    """Items to remove."""

    ids: list[Id] = Field(min_length=1, examples=[["shoes/17"]])

    def check(self, limits: Limits) -> None:
        """Refuse what is too much."""
        if len(self.ids) > limits.upsert:
            raise Problem(422, f"{len(self.ids)} ids are more than {limits.upsert}, the most for one call.")


class SessionRequest(_Request):
    """A token to be kept by the browser."""

    token: str = Field(max_length=1024)


def parse(kind: type[Kind], text: bytes | str) -> Kind:
    """Read a request from JSON, or raise a Problem that names the first mistake."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise Problem(422, f"{path + ': ' if path else ''}{first['msg']}.") from None
    except (ValueError, RecursionError):
        raise Problem(422, "The body is not JSON.") from None


def parse_json(text: str) -> Any:
    """Read JSON of any kind."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Problem(422, "The body is not JSON.") from None


def _width(step: Reranking) -> int:
    if isinstance(step, AlphaExpansion):
        return step.neighbours
    return max(step.candidates, step.k1, step.k2) if isinstance(step, KReciprocal) else 0
