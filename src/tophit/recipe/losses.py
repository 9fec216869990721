"""The recipe's losses: one small section a loss, chosen by its name, with its paper's defaults."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tophit.recipe.choices import Peer, chosen_by_name
from tophit.recipe.pair_losses import Angular, Contrastive, LiftedStructure, Margin, NPair, Triplet
from tophit.recipe.section import Section


class ProxyAnchor(Section):
    """One proxy a class: fast, any batch."""

    name: Literal["proxy-anchor"] = Field(default="proxy-anchor", description="The objective.")
    alpha: float = Field(default=32.0, gt=0, description="Scale of the similarities in the exponent.")
    margin: float = Field(default=0.1, description="Margin on the similarities.")


def _check_count(value: Any) -> Any:
    """Say once what is wrong; a union would say it for each of its types."""
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError("Expected a whole number from 1 on, or auto")
    return value


ProxyCount = Annotated[int | Literal["auto"], BeforeValidator(_check_count)]
PROXIES_PER_CLASS: Any = Field(
    default=10, description="Proxies of each class, or auto: start with 10 and let the regularizer merge them."
)
GAMMA: Any = Field(default=0.1, gt=0, description="Softness of the maximum over a class's proxies.")
REGULARIZER: Any = Field(default=0.2, ge=0, description="Weight of the distances inside a class's proxies.")


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


class MultiProxyAnchor(Section):
    """Several proxies a class, for classes that look several ways. Any batch."""

    name: Literal["multi-proxy-anchor"] = Field(default="multi-proxy-anchor", description="The objective.")
    proxies_per_class: ProxyCount = PROXIES_PER_CLASS
    variant: Literal["class", "data", "all-pairs"] = Field(
        default="class", description="Who is compared: class (MPA), data (MPA-DW) or all-pairs (MPA-AP)."
    )
    alpha: float = Field(default=32.0, gt=0, description="Scale of the similarities in the exponent.")
    margin: float = Field(default=0.1, description="Margin on the similarities.")
    gamma: float = GAMMA
    regularizer: float = REGULARIZER


class SoftTriple(Section):
    """A softmax over classes of several centres. Any batch."""

    name: Literal["soft-triple"] = Field(default="soft-triple", description="The objective.")
    proxies_per_class: ProxyCount = PROXIES_PER_CLASS
    scale: float = Field(default=20.0, gt=0, description="Scale of the similarities in the softmax.")
    margin: float = Field(default=0.01, description="By how much the own class must win.")
    gamma: float = GAMMA
    regularizer: float = REGULARIZER


class ProxyNCA(Section):
    """One proxy a class, nearer than all others. Any batch."""

    name: Literal["proxy-nca"] = Field(default="proxy-nca", description="The objective.")
    temperature: float = Field(default=1.0, gt=0, description="What squared distances are divided by.")


class ProxyNCAPlusPlus(Section):
    """ProxyNCA as a probability, at a low temperature. Any batch."""

    name: Literal["proxy-nca++"] = Field(default="proxy-nca++", description="The objective.")
    temperature: float = Field(default=1 / 9, gt=0, description="What squared distances are divided by.")


_Ranking = TopKPrecision | PNP | SmoothAP
_Proxies = MultiProxyAnchor | SoftTriple | ProxyNCA | ProxyNCAPlusPlus
_Pairwise = Contrastive | Triplet | Margin | LiftedStructure | NPair | Angular

Loss = Annotated[
    Annotated[ProxyAnchor | _Ranking | _Proxies | _Pairwise | Peer, Field(discriminator="name")],
    chosen_by_name("proxy-anchor"),
]
