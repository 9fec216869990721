"""The recipe's losses: one small section a loss, chosen by its name, with its paper's defaults."""

from typing import Annotated, Literal

from pydantic import Field

from tophit.recipe.choices import Peer, chosen_by_name
from tophit.recipe.pair_losses import Angular, Contrastive, LiftedStructure, Margin, NPair, Triplet
from tophit.recipe.section import Section


class ProxyAnchor(Section):
    """One proxy a class: fast, any batch."""

    name: Literal["proxy-anchor"] = Field(default="proxy-anchor", description="The objective.")
    alpha: float = Field(default=32.0, gt=0, description="Scale of the similarities in the exponent.")
    margin: float = Field(default=0.1, description="Margin on the similarities.")


class TopKPrecision(Section):
    """The first page of results. Wants balanced batches, in the paper 11 images a class."""

    name: Literal["topk-precision"] = Field(default="topk-precision", description="The objective.")
    k: int = Field(default=5, ge=1, description="Length of the first page.")
    margin: float = Field(default=0.1, description="What negatives get on top of their similarity.")
    reduction: Literal["sum", "mean"] = Field(default="sum", description="Over the queries of a batch.")


class PNP(Section):
    """Negatives before positives. Wants balanced batches, in the paper 4 images a class."""

    name: Literal["pnp"] = Field(default="pnp", description="The objective.")
    variant: Literal["O", "Iu", "Ib", "Ds", "Dq"] = Field(
        default="Dq", description="How a count of negatives is penalised: the same, increasing or decreasing."
    )
    alpha: float = Field(default=4.0, gt=0, description="How fast Dq decreases.")
    b: float = Field(default=2.0, gt=0, description="Where Ib levels off.")
    temperature: float = Field(default=0.01, gt=0, description="Softness of the counts.")
    include_self: bool = Field(default=False, description="A query is its own positive, as in the authors' code.")


class SmoothAP(Section):
    """Average precision. Wants balanced batches, in the paper 4 images a class."""

    name: Literal["smooth-ap"] = Field(default="smooth-ap", description="The objective.")
    temperature: float = Field(default=0.01, gt=0, description="Softness of the counts.")
    include_self: bool = Field(default=True, description="A query is its own first positive, as in the authors' code.")


_Ranking = ProxyAnchor | TopKPrecision | PNP | SmoothAP
_Pairwise = Contrastive | Triplet | Margin | LiftedStructure | NPair | Angular

Loss = Annotated[
    Annotated[_Ranking | _Pairwise | Peer, Field(discriminator="name")],
    chosen_by_name("proxy-anchor"),
]
