"""What every section of a recipe is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the recipe; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
