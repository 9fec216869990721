"""Sections chosen by name: a bare name stands for a section, and ``pml/NAME`` for one of pytorch-metric-learning."""

from typing import Any, Literal

from pydantic import BeforeValidator, Field, model_serializer

from tophit.recipe.section import Section

_PEER = "pml/"


class Peer(Section):
    """A class of pytorch-metric-learning; the section's other keys are its arguments, plain values only."""

    name: Literal["pml/NAME"] = Field(
        default="pml/NAME", description="A class of pytorch-metric-learning, which must be installed."
    )
    kind: str = Field(default="", description="Its NAME; written as part of name.")
    arguments: dict[str, Any] = Field(default={}, description="Its arguments; written as keys beside name.")

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {"name": f"{_PEER}{self.kind}", **self.arguments}


def chosen_by_name(default: str) -> BeforeValidator:
    """Read a section with a name, a bare name, or a section without a name, which means the default."""

    def read(value: Any) -> Any:
        if value is None or isinstance(value, str):
            value = {"name": value or default}
        if not isinstance(value, dict):
            return value
        value = {"name": default, **value}
        name = value["name"]
        if isinstance(name, str) and name.startswith(_PEER):
            arguments = {key: argument for key, argument in value.items() if key != "name"}
            return {"name": "pml/NAME", "kind": name.removeprefix(_PEER), "arguments": arguments}
        return value

    return BeforeValidator(read)
