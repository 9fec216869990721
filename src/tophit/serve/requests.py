"""What clients may ask: the bodies of requests, checked for form here and for size by :mod:`tophit.serve.config`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tophit.data.manifest import FEATURE_FILE
from tophit.evaluation.calibration import CUT_OFF
from tophit.evaluation.calibration_features import VOTERS
from tophit.registry import did_you_mean
from tophit.reranking import AlphaExpansion, KReciprocal, Reranking, parse_reranking
from tophit.search.chances import LeastChance
from tophit.search.filters import parse_filter
from tophit.search.query import TEXT_WEIGHT, ItemId, Query, Wording
from tophit.serve.config import Limits
from tophit.serve.decode_pool import FractionBox
from tophit.serve.problems import Problem

RESERVED = ("path", "box", FEATURE_FILE)
"""Metadata that says where a picture is: never shown, filtered by, or accepted from a client."""
Kind = TypeVar("Kind", bound="_Request")
Id = Annotated[str, Field(min_length=1, max_length=1024)]
GivenId = Annotated[str, Field(min_length=1, max_length=1600)]
"""An id as an answer gave it: encrypted, it is longer."""


_WORDING = Wording("", "files, ids, uploads, vectors, text", "one file, upload or id")


@dataclass(frozen=True)
class SentFile:
    """A picture that came with the request, and what messages call it."""

    data: bytes
    name: str


@dataclass(frozen=True)
class UploadName:
    """A picture of an earlier search."""

    name: str


@dataclass(frozen=True)
class SentVector:
    """A vector that came with the request."""

    values: list[float]


WebQuery = Query[SentFile | UploadName | ItemId | SentVector]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SearchRequest(_Request):
    """What to search by, and how. Ids, uploads, vectors and files are a query each, or one query ``together``."""

    ids: list[GivenId] = Field([], description="Items of the index; none finds itself.", examples=[["cats/1.jpg"]])
    uploads: list[Id] = Field([], description="Pictures of earlier searches, by the name that the answer gave them.")
    vectors: list[list[float]] = Field([], description="Vectors of this model.")
    box: FractionBox | None = Field(
        None,
        description="The part of the only id, upload or file to search by: x1, y1, x2, y2 as fractions of the upright "
        "picture's sides.",
        examples=[[0.1, 0.2, 0.6, 0.9]],
    )
    like: list[GivenId] = Field([], description="More like these items. Makes one query of everything.")
    unlike: list[GivenId] = Field([], description="Less like these items.")
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

    group_by: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="A field that groups items, such as a product's number: a result is the best item of a group. "
        "The rest of a group: the same search with the group's value in where.",
        examples=["sku"],
    )
    min_chance: float | None = Field(
        None, gt=0, le=1, description="Leave out results that are less likely to be right; needs a calibrated index."
    )
    precision: float | None = Field(
        None, gt=0, le=1, description="End the list where the expected share of right results would fall below this."
    )

    text: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Words to search for, alone or mixed with every query; for models with a text tower (see /about).",
        examples=["red mug with a handle"],
    )
    text_weight: float = Field(TEXT_WEIGHT, ge=0, le=1, description="How much words weigh beside pictures.")

    @model_validator(mode="after")
    def _box_is_inside(self) -> Self:
        if self.box is not None:
            x1, y1, x2, y2 = self.box
            if not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
                raise ValueError("a box has 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1")
        return self

    def to_query(self, limits: Limits, files: Sequence[bytes]) -> WebQuery:
        """Return the query, or refuse one that asks for too much or whose parts do not go together."""
        query = WebQuery(
            [
                *(SentFile(data, f"file {number}") for number, data in enumerate(files, 1)),
                *map(UploadName, self.uploads),
                *map(ItemId, self.ids),
                *map(SentVector, self.vectors),
            ],
            like=[ItemId(name) for name in self.like],
            unlike=[ItemId(name) for name in self.unlike],
            box=self.box,
            together=self.together,
            k=self.k,
            where=self.where,
            rerank=[parse_reranking(text) for text in self.rerank],
            group_by=self.group_by,
            least=LeastChance(self.min_chance, self.precision),
            text=self.text,
            text_weight=self.text_weight,
        )
        query.check(_WORDING, lambda source: not isinstance(source, SentVector))
        pictures = len(files) + len(self.uploads)
        if pictures > limits.files:
            raise Problem(422, f"{pictures} images are more than {limits.files}, the most for one request.")
        if len(query.examples) - pictures + len(self.like) + len(self.unlike) > limits.vectors:
            raise Problem(422, f"More than {limits.vectors} ids and vectors are too many for one request.")
        if self.k > limits.k:
            raise Problem(422, f"k is at most {limits.k}, not {self.k}.")
        for condition in parse_filter(self.where, limits.values):
            if condition.field in RESERVED:  # else paths could be guessed letter by letter
                raise Problem(422, f"filter.{condition.field}: this field is reserved for the server.")
        if self.group_by in RESERVED:
            raise Problem(422, f"group_by: the field '{self.group_by}' is reserved for the server.")
        widest = max([self.k, *map(_width, query.rerank)])
        if widest > limits.k:
            raise Problem(422, f"Re-ranking looks at {widest} results; at most {limits.k} are allowed.")
        count = 1 if query.is_combined else max(1, len(query.examples))
        if count * widest > limits.results:
            raise Problem(422, f"{count} queries of {widest} results are more than {limits.results:,} in all.")
        reordered = max([_candidates(step, self.k) for step in query.rerank], default=0)
        if (pairs := count * reordered**2) > limits.pairs:
            raise Problem(
                422,
                f"Re-ranking {count} queries of {reordered} candidates compares {pairs:,} pairs; at most "
                f"{limits.pairs:,} are allowed.",
            )
        return replace(query, deepest=_deepest(query, count, limits)) if query.group_by else query


class NameRequest(_Request):
    """Pictures to name. Ids, uploads, vectors and files are named one by one."""

    ids: list[GivenId] = Field([], description="Items of the index; none is its own evidence.", examples=[["a.jpg"]])
    uploads: list[Id] = Field([], description="Pictures of earlier searches, by the name that the answer gave them.")
    vectors: list[list[float]] = Field([], description="Vectors of this model.")
    where: dict[str, Any] | None = Field(None, description="Only items that meet this filter, as in a search.")
    cut_off: float = Field(CUT_OFF, ge=0, le=1, description="Below this chance the answer is unknown: label is null.")

    def to_query(self, limits: Limits, files: Sequence[bytes]) -> WebQuery:
        """Return the search for the neighbours, or refuse one that asks for too much."""
        given = {"ids": self.ids, "uploads": self.uploads, "vectors": self.vectors, "where": self.where}
        return SearchRequest(**given, k=VOTERS).to_query(limits, files)  # type: ignore[arg-type]


class NewItem(_Request):
    """An item to add, or to replace the one of the same id."""

    id: Id = Field(examples=["shoes/17"])
    vector: list[float] | None = Field(None, description="A vector of this model; without it, a file must be sent.")
    metadata: dict[str, Any] = Field({}, examples=[{"label": "boot", "price": 80}])


class UpsertRequest(_Request):
    """Items; with files, one file per item in the same order."""

    items: list[NewItem] = Field(min_length=1)

    def check(self, limits: Limits, files: int) -> None:
        """Refuse too many items, and items without a picture or vector."""
        if len(self.items) > limits.upsert:
            raise Problem(422, f"{len(self.items)} items are more than {limits.upsert}, the most for one call.")
        if files > limits.files:
            raise Problem(422, f"{files} images are more than {limits.files}, the most for one request.")
        if files and files != len(self.items):
            raise Problem(422, f"{files} files and {len(self.items)} items: send one file per item.")
        for number, item in enumerate(self.items):
            if bool(files) == (item.vector is not None):
                raise Problem(422, f"items[{number}] needs either a file or a vector.")
            if taken := [name for name in RESERVED if name in item.metadata]:
                raise Problem(422, f"items[{number}]: the field '{taken[0]}' is reserved for the server.")


class DeleteRequest(_Request):
    """Items to remove."""

    ids: list[GivenId] = Field(min_length=1, examples=[["shoes/17"]])

    def check(self, limits: Limits) -> None:
        """Refuse too many ids."""
        if len(self.ids) > limits.upsert:
            raise Problem(422, f"{len(self.ids)} ids are more than {limits.upsert}, the most for one call.")


class SessionRequest(_Request):
    """A token for the browser to keep."""

    token: str = Field(max_length=1024)


def parse(kind: type[Kind], text: bytes | str) -> Kind:
    """Read a request from JSON, or raise a Problem that names the first mistake."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            known = sorted(kind.model_fields)
            raise Problem(
                422, f"{path}: unknown field.{did_you_mean(path, known)} Fields: {', '.join(known)}."
            ) from None
        raise Problem(422, f"{path + ': ' if path else ''}{first['msg']}.") from None
    except (ValueError, RecursionError):
        raise Problem(422, "The body is not JSON.") from None


async def read_body(request: Request, limits: Limits, field: str) -> tuple[bytes, list[bytes]]:
    """Return the JSON and the files of a request; the JSON of a form is in its field of that name, ``{}`` if missing.

    File names and types that a client sends are ignored.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return await request.body(), []
    if kind != "multipart/form-data":
        raise Problem(415, "Send application/json, or multipart/form-data with files.")
    try:
        async with request.form(max_files=limits.files, max_fields=4, max_part_size=limits.json_bytes) as form:
            text, files = b"{}", []
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    if name != "files":
                        raise Problem(422, f"Files go into the field 'files', not '{name}'.")
                    files.append(await value.read())
                elif name == field:
                    text = value.encode(errors="replace")
                else:
                    raise Problem(422, f"The form has the fields 'files' and '{field}', not '{name}'.")
    except HTTPException as error:
        raise Problem(413 if "Too many" in error.detail else 400, f"The form can't be read: {error.detail}") from None
    return text, files


def body_schema(kind: type[BaseModel], field: str | None, examples: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a body for OpenAPI: JSON, and with ``field`` a form with files as well."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    content: dict[str, Any] = {"application/json": {"schema": schema, "examples": examples}}
    if field is not None:
        properties = {
            "files": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1},
            field: {"type": "string", "description": f"JSON as in {kind.__name__}.", "example": "{}"},
        }
        form = {"type": "object", "properties": properties, "required": ["files"]}
        content["multipart/form-data"] = {"schema": form}
    return {"requestBody": {"required": True, "content": content}}


def _deepest(query: WebQuery, queries: int, limits: Limits) -> int:
    """Return how many results a search for groups may look at, so that it costs no more than a search for items."""
    deepest = min(limits.k, limits.results // queries)
    if any(isinstance(step, KReciprocal) for step in query.rerank):
        deepest = min(deepest, math.isqrt(limits.pairs // queries))
    return max(query.k, deepest)


def _candidates(step: Reranking, k: int) -> int:
    return max(step.candidates, k) if isinstance(step, KReciprocal) else 0


def _width(step: Reranking) -> int:
    if isinstance(step, AlphaExpansion):
        return step.neighbours
    return max(step.candidates, step.k1, step.k2) if isinstance(step, KReciprocal) else 0
