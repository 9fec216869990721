"""The recipe's methods: how a training step is made."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

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


class Generation(Section):
    """THSG: hard triplets made by two generators teach beside the real ones. Wants balanced batches and a pair loss."""

    name: Literal["generation"] = Field(default="generation", description=_NAME)
    alpha: float = Field(default=0.2, ge=0, description="How far a pair at the mean distance is stretched (Eq. 10).")
    gamma: float = Field(default=0.8, ge=0, description="How much more a pair at distance 0 is stretched (Eq. 10).")
    eta: float = Field(
        default=0.3,
        ge=0,
        le=0.5,
        description="Weight of label and realness in the generators' losses (Eqs. 12, 17).",
    )
    beta: float = Field(
        default=0.5, gt=0, description="How soon generated triplets weigh more as the generator's loss falls (Eq. 5)."
    )
    mu: float = Field(default=0.3, ge=0, le=1, description="Weight of the reverse triplet loss (Eq. 17).")
    phi: float = Field(
        default=0.5, ge=0, description="Weight of the category loss; the paper: 0.5 (CUB), 0.25 (Cars), 0.2 (SOP)."
    )
    nu: float = Field(default=0.2, ge=0, description="Largest margin of the reverse triplet loss (Eq. 19).")
    metric: Literal["sql2", "l2"] = Field(
        default="sql2", description="Distance of a pair in Eqs. 10 and 11: squared or plain."
    )
    normalize_d2: bool = Field(
        default=True, description="Divide the second discriminator's loss by its classes (Eq. 23); not for thousands."
    )
    pretrain_epochs: int = Field(default=1, ge=0, description="First epochs without generated samples.")
    second_stage: bool = Field(default=True, description="Ablation: false leaves out the second generator.")
    category: bool = Field(default=True, description="Ablation: false keeps the category loss from the embedder.")
    hard: bool = Field(default=True, description="Ablation: false leaves out the loss of generated triplets.")
    hard_loss: Literal["same", "triplet", "contrastive", "margin", "lifted-structure", "n-pair", "angular"] = Field(
        default="same", description="The loss of generated triplets: that of the section loss, or another by its name."
    )
    buffer_steps: int = Field(
        default=0, ge=0, description="Steps for which good generated samples are used again, as negatives; 0: none."
    )
    classifier_lr: float = Field(default=1e-3, ge=0, description="Learning rate of the shared classifier.")
    generator_lr: float = Field(default=1e-3, ge=0, description="Learning rate of both generators.")
    discriminator_lr: float = Field(default=1e-4, ge=0, description="Learning rate of both discriminators.")
    weight_decay: float = Field(
        default=4e-4, ge=0, description="Weight decay of classifier, generators and discriminators."
    )
    generator_width: int = Field(default=128, ge=1, description="Width of the generators' hidden layer.")
    discriminator_width: int = Field(default=512, ge=1, description="Width of the discriminators' hidden layer.")

    @field_validator("mu")
    @classmethod
    def _leaves_weight_for_reconstruction(cls, mu: float, info: ValidationInfo) -> float:
        if 2 * info.data.get("eta", 0) + mu > 1 + 1e-9:
            raise ValueError("2 eta + mu must be at most 1, since Eq. 17 gives the rest to the reconstruction")
        return mu


Method = Annotated[Annotated[Plain | Projection | Generation, Field(discriminator="name")], chosen_by_name("plain")]
