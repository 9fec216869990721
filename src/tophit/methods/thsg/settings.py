"""The settings of THSG, with the paper's values: the options of the recipe's section."""

from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from tophit.options import AtLeastZero, Count, Doc, LossOrSame, Positive, RestOf


@dataclass(frozen=True)
class GenerationSettings:
    """All options of the method, with the paper's values as defaults."""

    alpha: Annotated[AtLeastZero, Doc("How far a pair at the mean distance is stretched (Eq. 10).")] = 0.2
    gamma: Annotated[AtLeastZero, Doc("How much more a pair at distance 0 is stretched (Eq. 10).")] = 0.8
    eta: Annotated[
        float, Doc("Weight of label and realness in the generators' losses (Eqs. 12, 17).", ge=0, le=0.5)
    ] = 0.3
    beta: Annotated[
        Positive, Doc("How early generated triplets gain weight as the generator's loss falls (Eq. 5).")
    ] = 0.5
    mu: Annotated[
        float,
        Doc("Weight of the reverse triplet loss (Eq. 17).", ge=0, le=1),
        RestOf("eta", 2, "Eq. 17 gives the rest to the reconstruction"),
    ] = 0.3
    phi: Annotated[AtLeastZero, Doc("Weight of the category loss; the paper: 0.5 (CUB), 0.25 (Cars), 0.2 (SOP).")] = 0.5
    nu: Annotated[AtLeastZero, Doc("Largest margin of the reverse triplet loss (Eq. 19).")] = 0.2
    metric: Annotated[Literal["sql2", "l2"], Doc("Distance of a pair in Eqs. 10 and 11: squared or plain.")] = "sql2"
    normalize_d2: Annotated[
        bool,
        Doc("Divide the second discriminator's loss by its number of classes (Eq. 23); not for thousands of classes."),
    ] = True
    pretrain_epochs: Annotated[int, Doc("Number of first epochs without generated samples.", ge=0)] = 1
    second_stage: Annotated[bool, Doc("Ablation: false leaves out the second generator.")] = True
    category: Annotated[bool, Doc("Ablation: false trains the embedder without the category loss.")] = True
    hard: Annotated[bool, Doc("Ablation: false leaves out the loss of generated triplets.")] = True
    hard_loss: Annotated[
        LossOrSame, Doc("Loss of generated triplets: same (as in the section loss), or another by name.")
    ] = "same"
    buffer_steps: Annotated[
        int, Doc("Steps for which good generated samples are reused as negatives; 0: never.", ge=0)
    ] = 0
    classifier_rate: Annotated[AtLeastZero, Doc("Rate of the classifier, in multiples of the embedder's.")] = 100.0
    generator_rate: Annotated[AtLeastZero, Doc("Rate of the generators, in multiples of the embedder's.")] = 100.0
    discriminator_rate: Annotated[AtLeastZero, Doc("Rate of the discriminators, in multiples of the embedder's.")] = (
        10.0
    )
    classifier_lr: Annotated[AtLeastZero | None, Doc("The classifier's learning rate itself, instead.")] = None
    generator_lr: Annotated[AtLeastZero | None, Doc("The generators' learning rate itself, instead.")] = None
    discriminator_lr: Annotated[AtLeastZero | None, Doc("The discriminators' learning rate itself, instead.")] = None
    weight_decay: Annotated[AtLeastZero, Doc("Weight decay of classifier, generators and discriminators.")] = 4e-4
    generator_width: Annotated[Count, Doc("Width of the generators' hidden layer.")] = 128
    discriminator_width: Annotated[Count, Doc("Width of the discriminators' hidden layer.")] = 512

    def rates(self, embedder: float) -> dict[str, float]:
        """Return the learning rates beside the embedder's: the paper has 100 and 10 to 1, unless they are given."""
        rates = {
            "classifier": (self.classifier_lr, self.classifier_rate),
            "generator": (self.generator_lr, self.generator_rate),
            "discriminator": (self.discriminator_lr, self.discriminator_rate),
        }
        return {name: ratio * embedder if given is None else given for name, (given, ratio) in rates.items()}

    @property
    def generates(self) -> bool:
        """Whether anything uses generated samples."""
        return self.hard or self.category
