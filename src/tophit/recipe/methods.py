"""The recipe's methods: how a training step is made."""

from typing import Annotated, Literal

from pydantic import Field

from tophit.recipe.choices import chosen_by_name
from tophit.recipe.section import Section

_NAME = "How a training step is made."


class Plain(Section):
    """One batch, one loss, one step."""

    name: Literal["plain"] = Field(default="plain", description=_NAME)


class Projection(Section):
    """PROFS: one representative a class for some steps, close to the weights before. Wants balanced batches."""

    name: Literal["projection"] = Field(default="projection", description=_NAME)
    hncm: bool = Field(
        default=False, description="Hard negative class mining: batches of classes whose representatives are near."
    )
    proximal: float = Field(
        default=1e-3, ge=0, description="Lambda: how strongly weights are held where the projection began."
    )
    proximal_in_first_cycle: bool = Field(
        default=True, description="Hold the weights in the first projection too, which begins at untrained ones."
    )
    rho: float = Field(
        default=6.0, gt=0, description="How often a representative is used before the next: M = ceil(rho / p) steps."
    )
    steps: int | None = Field(default=None, ge=1, description="M itself, instead of rho.")
    near: float = Field(
        default=0.5, gt=0, description="For the log: same class farther than this from its representative is violated."
    )
    far: float = Field(
        default=1.2, gt=0, description="For the log: another class nearer than this to a representative is violated."
    )


Method = Annotated[Annotated[Plain | Projection, Field(discriminator="name")], chosen_by_name("plain")]
