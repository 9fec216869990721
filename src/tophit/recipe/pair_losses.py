"""The recipe's pair losses: each looks at pairs or triplets, which a miner or a projection chooses."""

from typing import Literal

from pydantic import Field

from tophit.recipe.section import Section


class Contrastive(Section):
    """Pairs: same class to distance 0, others beyond the margin."""

    name: Literal["contrastive"] = Field(default="contrastive", description="The objective.")
    margin: float = Field(default=1.0, gt=0, description="Distance beyond which negatives are left alone.")


class Triplet(Section):
    """Triplets: a positive nearer than a negative."""

    name: Literal["triplet"] = Field(default="triplet", description="The objective.")
    margin: float = Field(default=0.2, description="By how much nearer, in squared distance.")


class Margin(Section):
    """Pairs: same class nearer than a learned boundary, others farther."""

    name: Literal["margin"] = Field(default="margin", description="The objective.")
    boundary: float = Field(
        default=1.2, gt=0, description="Where the boundary starts; optimizer.proxies says how fast it moves."
    )
    margin: float = Field(default=0.2, ge=0, description="Distance to the boundary that is asked for.")


class LiftedStructure(Section):
    """Each positive pair against all negatives of both ends."""

    name: Literal["lifted-structure"] = Field(default="lifted-structure", description="The objective.")
    alpha: float = Field(default=1.0, description="Margin of the negatives.")
    normalize: bool = Field(default=False, description="On unit vectors; the paper takes vectors as they are.")


class NPair(Section):
    """A softmax over one positive a class. Wants 2 images a class."""

    name: Literal["n-pair"] = Field(default="n-pair", description="The objective.")
    norm_penalty: float = Field(default=0.0, ge=0, description="Weight of the mean squared length of the vectors.")
    normalize: bool = Field(default=False, description="On unit vectors; the paper takes vectors as they are.")


class Angular(Section):
    """N-pair with angles instead of products. Wants 2 images a class."""

    name: Literal["angular"] = Field(default="angular", description="The objective.")
    alpha: float = Field(default=45.0, gt=0, lt=90, description="Largest angle at a negative, in degrees.")
    normalize: bool = Field(default=False, description="On unit vectors; the paper takes vectors as they are.")
