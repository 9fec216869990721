"""The sections of a recipe that say how weights are learned: views, terms beside the loss, optimizer, schedule."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from tophit.recipe.choosing import Section


class Memory(Section):
    """XBM: each batch is also compared with earlier ones. For losses that compare images."""

    size: int = Field(default=0, ge=0, description="Past embeddings to compare a batch with; 0: none.")
    start: int = Field(default=0, ge=0, description="Steps before the memory is used, until embeddings move slowly.")
    weight: float = Field(default=1.0, gt=0, description="Weight of the loss against the memory.")


class Consistency(Section):
    """TCM: one cut-off on the similarity for all classes, beside any loss that is learned on batches."""

    weight: float = Field(default=0.0, ge=0, description="Weight of the threshold-consistent margin; 0: none.")
    high: float = Field(default=0.9, ge=-1, le=1, description="Similarity that images of one class should reach.")
    low: float = Field(default=0.5, ge=-1, le=1, description="Similarity that images of two classes should not exceed.")


class Words(Section):
    """Keeps text search while the embedder learns from images, where the backbone has a text tower (pooling: joint)."""

    weight: float = Field(
        default=0.0, ge=0, description="Weight of the change of similarities with class names; 0: none."
    )
    prompt: str = Field(default="a photo of a {}", description="The sentence made of a class name, in place of {}.")

    @field_validator("prompt")
    @classmethod
    def _has_a_place(cls, value: str) -> str:
        if value.count("{}") != 1 or value.replace("{}", "").count("{") or value.replace("{}", "").count("}"):
            raise ValueError("a prompt has {} once, where the class name goes")
        return value


class Augment(Section):
    """Random views of training images, where more than the head learns."""

    views: int = Field(
        default=4,
        ge=0,
        description="How many random views of each image are computed once and learned from in turn (for 'last'); 0: "
        "the plain view only.",
    )

    crop: Literal["view", "random", "random-resized"] = Field(
        default="view",
        description="What a view shows: 'view' a share of the evaluation view, 'random' a window of the "
        "input's size anywhere, 'random-resized' a share of the picture with varying aspect ratio.",
    )
    scale: tuple[float, float] = Field(
        default=(0.6, 1.0),
        description="Range of the crop's share of the area (for view and random-resized).",
    )
    ratio: tuple[float, float] = Field(
        default=(3 / 4, 4 / 3), description="Range of a random-resized crop's width / height."
    )
    flip: bool = Field(default=True, description="Mirror half of the pictures.")
    jitter: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Change brightness, contrast and saturation by random factors of 1 - jitter to 1 + jitter.",
    )
    erase: float = Field(
        default=0.0, ge=0, le=1, description="Chance that a random rectangle of a view is replaced by noise."
    )

    def of_views(self) -> dict[str, Any]:
        """Return the fields that say how a view is drawn."""
        return self.model_dump(exclude={"views"})

    @field_validator("ratio")
    @classmethod
    def _ratios_in_order(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1]:
            raise ValueError("Expected two ratios, 0 < least <= most")
        return value

    @field_validator("scale")
    @classmethod
    def _in_order(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1] <= 1:
            raise ValueError("Expected two shares, 0 < least <= most <= 1")
        return value


class BackboneGroup(Section):
    """How the backbone's weights are updated."""

    lr: float = Field(default=1e-4, ge=0, description="Learning rate of the backbone.")
    weight_decay: float = Field(default=1e-4, ge=0, description="Weight decay of this group.")


class HeadGroup(BackboneGroup):
    """How the head's weights are updated."""

    lr: float = Field(default=1e-3, ge=0, description="Learning rate of the head.")


class ProxyGroup(BackboneGroup):
    """How the loss's own parameters are updated."""

    lr: float = Field(default=1e-2, ge=0, description="Learning rate of the loss's own parameters, such as proxies.")


class Optimizer(Section):
    """How weights are updated."""

    name: Literal["adamw", "adam", "sgd"] = Field(default="adamw", description="The optimizer.")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Momentum (for sgd).")
    betas: tuple[float, float] = Field(
        default=(0.9, 0.999), description="What Adam keeps of its two running means at each step (for adam, adamw)."
    )
    eps: float = Field(default=1e-8, gt=0, description="Adam's epsilon, added to its denominators (for adam, adamw).")
    clip: float | None = Field(
        default=None, gt=0, description="Largest gradient norm; larger gradients are scaled down to it."
    )
    ema: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Decay of a moving average of the weights, which is evaluated and saved instead; 0: no average.",
    )
    layer_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Factor on the rate of each stage of the backbone relative to the stage after it; the last one "
        "learns at backbone.lr.",
    )
    backbone: BackboneGroup = BackboneGroup()
    head: HeadGroup = HeadGroup()
    proxies: ProxyGroup = ProxyGroup()

    @field_validator("betas")
    @classmethod
    def _shares(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= each < 1 for each in value):
            raise ValueError("Both betas must be at least 0 and below 1")
        return value


class Schedule(Section):
    """How long to train, and how learning rates change."""

    epochs: int = Field(default=20, ge=1, description="Passes over the training images.")
    warmup_epochs: int = Field(
        default=1, ge=0, description="First epochs in which only head and proxies learn (not for 'head')."
    )
    unfreeze_epochs: int = Field(
        default=0,
        ge=0,
        description="After the warm-up only the backbone's last stage learns, and one more stage every so many epochs; "
        "0: all at once.",
    )
    sizes: tuple[Annotated[int, Field(ge=8)], ...] = Field(
        default=(),
        description="Sides of the training views in pixels, each for an equal part of the epochs, such as [128, 176, "
        "224] (for 'all'); none: embedder.size. Evaluation always uses embedder.size.",
    )
    decay: Literal["none", "cosine", "step", "multi-step"] = Field(
        default="cosine",
        description="How learning rates fall: along a cosine at every step, or by gamma at certain epochs.",
    )
    step_epochs: int = Field(default=10, ge=1, description="Epochs between falls (for step).")
    milestones: tuple[int, ...] = Field(default=(), description="Epochs after which rates fall (for multi-step).")
    gamma: float = Field(
        default=0.1, gt=0, le=1, description="Factor on the rates at each fall (for step, multi-step)."
    )
    lr_warmup_steps: int = Field(default=0, ge=0, description="First steps, during which learning rates rise from 0.")
    lr_warmup_epochs: float = Field(default=0.0, ge=0, description="The same in epochs; the longer of the two counts.")
    patience: int | None = Field(
        default=None, ge=1, description="Stop after this many evaluations without improvement; null: never."
    )
    stop_above: float | None = Field(
        default=None, description="A loss above this stops the run as diverged, just like a loss that is not a number."
    )
