"""The recipe's miners: which tuples of a batch the loss looks at."""

from typing import Annotated, Literal

from pydantic import Field

from tophit.recipe.choices import Peer, chosen_by_name
from tophit.recipe.section import Section

_NAME = "Which tuples of a batch the loss looks at."


class NoMiner(Section):
    """All pairs or triplets."""

    name: Literal["none"] = Field(default="none", description=_NAME)


class Uniform(Section):
    """Each positive pair with a random negative."""

    name: Literal["uniform"] = Field(default="uniform", description=_NAME)


class Hard(Section):
    """Each anchor's farthest positive and nearest negative."""

    name: Literal["hard"] = Field(default="hard", description=_NAME)


class SemiHard(Section):
    """Negatives just farther than the positive."""

    name: Literal["semi-hard"] = Field(default="semi-hard", description=_NAME)
    margin: float = Field(default=0.2, gt=0, description="How much farther at most, in squared distance.")
    every: bool = Field(default=False, description="All such negatives of a pair, not only the nearest.")


class SoftHard(Section):
    """Random ones of the hard positives and the hard negatives."""

    name: Literal["soft-hard"] = Field(default="soft-hard", description=_NAME)


class DistanceWeighted(Section):
    """Negatives from all distances equally often."""

    name: Literal["distance-weighted"] = Field(default="distance-weighted", description=_NAME)
    cutoff: float = Field(default=0.5, gt=0, lt=2, description="Smaller distances count as this one.")
    farthest: float = Field(default=1.4, gt=0, le=2, description="Negatives from this distance on are left out.")


class BalancedHard(Section):
    """All positives, and as many of the nearest negatives: the hard mining of the PROFS paper."""

    name: Literal["balanced-hard"] = Field(default="balanced-hard", description=_NAME)


Miner = Annotated[
    Annotated[
        NoMiner | Uniform | Hard | SemiHard | SoftHard | DistanceWeighted | BalancedHard | Peer,
        Field(discriminator="name"),
    ],
    chosen_by_name("none"),
]
