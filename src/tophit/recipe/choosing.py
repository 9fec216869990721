"""Sections chosen by name: each registered loss, miner, method or sampler becomes a section of the recipe.

A bare name stands for a section, ``package.module:Name`` for something outside the package, and ``pml/NAME`` for a
class of pytorch-metric-learning, whose arguments are written as keys next to the name.
"""

import inspect
from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from tophit.errors import UsageError
from tophit.options import Registered
from tophit.registry import did_you_mean, entries, find, is_known, meant, names, own_names
from tophit.signatures import Foreign

PEER = "pml/"
Prefixes = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...],
    Field(
        description="Lengths of prefixes of the vector that are learned too (Matryoshka), such as [32, 64]; then "
        "'tophit index --dim 32' makes a smaller and faster index."
    ),
]


class Section(BaseModel):
    """A part of the recipe; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, arbitrary_types_allowed=True)


class Peer(Section):
    """A class of pytorch-metric-learning; the section's other keys are its arguments, plain values only."""

    name: str = Field(description="A class of pytorch-metric-learning, which must be installed.")
    prefixes: Prefixes = ()
    arguments: dict[str, Any] = Field(default={}, description="Its arguments; written as keys next to name.")

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        prefixes = {"prefixes": self.prefixes} if self.prefixes else {}
        return {"name": self.name, **prefixes, **self.arguments}


def chosen(kind: str, default: str, key: str = "name", peers: bool = False) -> BeforeValidator:
    """Read a section whose ``key`` names something registered, a bare name, or a section without a name."""

    def read(value: Any) -> Any:
        if isinstance(value, Section):
            return value
        if value is None or isinstance(value, str):
            value = {key: value or default}
        if not isinstance(value, dict):
            raise PydanticCustomError("not_chosen", "must be a section with a {key} and its fields", {"key": key})
        value = {key: default, **value}
        name = meant(kind, str(value[key]))
        value[key] = name
        if peers and name.startswith(PEER):
            prefixes = value.get("prefixes") or ()
            own = {each: value[each] for each in value if each not in (key, "prefixes")}
            return Peer.model_validate({"name": name, "prefixes": prefixes, "arguments": own})
        if not is_known(kind, name):
            known = [*names(kind), *([f"{PEER}NAME"] if peers else [])]
            hint = f"{other_section(kind, name) or did_you_mean(name, known)} Choices: {', '.join(known)}"
            raise PydanticCustomError("unknown_choice", "{hint}", {"hint": hint, "key": key, "name": name})
        try:
            section = section_of(kind, name)
        except UsageError as error:
            raise PydanticCustomError("unusable_choice", "{reason}", {"reason": str(error), "key": key}) from None
        try:
            return section.model_validate(value)
        except ValidationError as error:
            found = {"problems": error.errors(include_url=False), "section": section}
            raise PydanticCustomError("in_section", "see its fields", found) from None

    return BeforeValidator(read)


def other_section(kind: str, name: str) -> str:
    """Return where a name belongs that is none of this kind: another section, or a loss together with a miner."""
    for other in ("loss", "method", "miner"):
        if other != kind and is_known(other, meant(other, name)):
            return f" '{name}' is a {other}: set {other}={name}."
    for at in range(1, len(name)):  # triplet-semi, triplet_hard
        loss, rest = meant("loss", name[:at]), name[at:].strip("-_ ")
        miner = next((each for each in names("miner") if rest and each.startswith(rest.lower())), None)
        if miner and is_known("loss", loss) and ":" not in name:
            return f" '{name}' is the loss {loss} with the miner {miner}: set loss={loss} and miner={miner}."
    return ""


@cache
def section_of(kind: str, name: str) -> type[Section]:
    """Return the section of a registered name: the name, and a field for every parameter that a user may set."""
    if kind == "sampler":
        return _batches(name)
    common: dict[str, Any] = {"prefixes": (Prefixes, ())} if kind == "loss" else {}
    return _made(kind, name, "name", {**_fields(kind, name), **common})


def _batches(sampler: str) -> type[Section]:
    """Return the section ``batches``: it has the options of all the package's samplers, whichever is chosen."""
    fields: dict[str, Any] = {}
    for each in [*own_names("sampler"), sampler]:
        fields |= _fields("sampler", each)
    fields["chunk"] = (
        int | None,
        Field(
            default=None,
            ge=1,
            description="Most images that pass through the embedder at once, per process. A larger batch needs only "
            "the memory of a chunk and gets the same gradients, but runs the embedder twice.",
        ),
    )
    return _made("sampler", sampler, "sampler", fields)


def _made(kind: str, name: str, key: str, fields: dict[str, Any]) -> type[Section]:
    named: dict[str, Any] = {key: (Literal[name], Field(default=name, description=_WHICH[kind]))}
    return create_model(name, __base__=Section, __doc__=find(kind, name).summary, **named, **fields)


_WHICH = {
    "loss": "The objective.",
    "miner": "Which pairs or triplets of a batch the loss uses.",
    "method": "How a training step is made.",
    "sampler": "Which images form a batch: balanced, classes x per_class images; confused, the same of classes that "
    "the model confuses; random, size images.",
}


def registered(kind: str, also: Sequence[str] = ()) -> AfterValidator:
    """Reject a name that is neither registered nor one of the words ``also``."""

    def check(name: str) -> str:
        name = name if name in also else meant(kind, name)
        if name not in also and not is_known(kind, name):
            known = [*also, *(f"{each}NAME" if each.endswith("/") else each for each in names(kind))]
            hint = f"{did_you_mean(name, known)} Choices: {', '.join(known)}"
            raise PydanticCustomError("unknown_name", "{hint}", {"hint": hint})
        return name

    return AfterValidator(check)


def _fields(kind: str, name: str) -> dict[str, Any]:
    return {
        option: (_plain(each.annotation), ... if each.default is inspect.Parameter.empty else each.default)
        for option, each in find(kind, name).options.items()
    }


def _plain(annotation: Any) -> Any:
    """Return a type as a recipe can hold it: without types that only Python has; any value if there is no type."""
    if annotation is inspect.Parameter.empty:
        return Any
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        metadata = [registered(each.kind, each.also) if isinstance(each, Registered) else each for each in metadata]
        return Annotated[(_plain(inner), *metadata)]  # type: ignore[return-value]
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(each for each in get_args(annotation) if each is not Foreign)]  # noqa: UP007
    return annotation


def alternatives(kind: str) -> dict[str, type[Section]]:
    """Return the sections of everything registered under a kind, by name."""
    return {entry.name: section_of(kind, entry.name) for entry in entries(kind)}
