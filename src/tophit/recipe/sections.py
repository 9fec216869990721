"""The recipe: one typed YAML file that describes a whole run.

Losses, miners, methods and samplers document their own fields in their signatures; all others are documented here and,
where they say how weights are learned, in ``learning``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, SerializeAsAny, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from tophit.errors import UsageError
from tophit.models.running import check_device
from tophit.recipe.choosing import Section, chosen, registered, section_of
from tophit.recipe.learning import Augment, Consistency, Memory, Optimizer, Schedule, Words
from tophit.registry import find_metric

if TYPE_CHECKING:  # sections from the registry: their fields are not known until it is read
    Loss = Miner = Method = Batches = Any
else:
    Loss = Annotated[SerializeAsAny[Section], chosen("loss", "proxy-anchor", peers=True)]
    Miner = Annotated[SerializeAsAny[Section], chosen("miner", "none", peers=True)]
    Method = Annotated[SerializeAsAny[Section], chosen("method", "plain")]
    Batches = Annotated[SerializeAsAny[Section], chosen("sampler", "balanced", key="sampler")]
CHOSEN = {"loss": "loss", "miner": "miner", "method": "method", "batches": "sampler"}
"""The recipe's sections that are chosen by name, and the kind of each."""
Protocol = Literal["drawn-galleries", "all"]
CLUSTERING = ("NMI", "F1")
SPREAD = {"dists@intra": "intra", "dists@inter": "inter"}
"""Further columns of papers' tables: of k-means clusters; and distances (PNP), with their names in ``class_spread``."""


def _known_to(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return what refuses a name for the reason that a check gives."""

    def known(name: str) -> str:
        try:
            check(name)
        except UsageError as error:
            raise PydanticCustomError("refused_name", "{reason}", {"reason": str(error)}) from None
        return name

    return known


_metric = _known_to(find_metric)


class Data(Section):
    """The data to learn from."""

    manifest: str = Field(
        description="A manifest (.csv, .parquet), a folder of class folders, the set 'icons', the folder of 'set', or "
        "a feature file (.npz)."
    )
    set: Annotated[str, registered("set")] | None = Field(
        default=None, description="The benchmark set whose unpacked archives are in the folder 'manifest'."
    )
    partial: bool = Field(
        default=False, description="Continue even if images of the benchmark set are missing or counts differ."
    )
    levels: tuple[str, ...] = Field(
        default=(),
        description="Columns above the label, from the coarsest, that make it a path in a hierarchy: [family], or "
        "[order, family]. A manifest with the column label_path needs none.",
    )
    boxes: bool = Field(default=False, description="Crop the benchmark set's images to their objects' boxes.")
    test_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="For a folder without train/ and test/: the share of classes kept for testing.",
    )
    split_seed: int = Field(
        default=0,
        ge=0,
        description="For such a folder: seed for choosing the test classes. It is separate from 'seed', so that runs "
        "with different seeds are tested on the same classes.",
    )
    validation_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Share of the training classes held out to choose the best epoch; 0 keeps the last epoch.",
    )
    validation_fold: int = Field(
        default=0,
        ge=0,
        description="Which classes are held out: 0 the first share of the shuffled classes, 1 the next, and so on.",
    )
    validation_order: Literal["shuffled", "listed"] = Field(
        default="shuffled",
        description="Whether the classes held out are drawn at random, or neighbours in the order in which the data "
        "list their classes: as far from the others as the test classes are in sets that are split along such a list.",
    )
    merge_classes: int = Field(
        default=1,
        ge=1,
        description="How many training classes to merge into one; validation and test classes stay. "
        "3 is the PNP paper's test of robustness.",
    )
    max_bad_images: int = Field(
        default=0, ge=0, description="How many unreadable images to skip, with a note, before the run stops."
    )
    workers: int = Field(default=0, ge=0, description="Processes that read images; 0 reads in the training process.")
    cache: Literal["none", "ram", "disk"] = Field(
        default="none",
        description="Cache decoded training images (for 'all'): in memory, or on disk for later runs too.",
    )
    cache_gb: float = Field(default=4.0, gt=0, description="Size limit of the cache of decoded images, in gigabytes.")
    activations: Literal["float16", "float32"] = Field(
        default="float16", description="How the activations before the cut are kept on disk (for 'last')."
    )
    activations_gb: float = Field(
        default=20.0, gt=0, description="Most gigabytes of activations that a run may need (for 'last')."
    )

    @field_validator("levels", mode="before")
    @classmethod
    def _one_level(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class Embedder(Section):
    """What to train."""

    backbone: Annotated[str, registered("backbone")] = Field(
        default="efficientnet-lite0",
        description="The network: efficientnet-lite0 to lite2, googlenet (the original), googlenet-bn, bn-inception, "
        "resnet50, resnet50-v1, densenet201, small; timm/NAME, torchvision/NAME, hf/NAME or open_clip/NAME:WEIGHTS if "
        "that library is installed. For a feature file: features/LENGTH, set automatically.",
    )
    weights: str = Field(
        default="pretrained",
        description="The backbone's initial weights: pretrained, random, or a file (.safetensors, .pth, "
        ".caffemodel, model.json of TensorFlow.js).",
    )
    pooling: Literal["average", "max", "rmac", "gem", "cls", "joint"] = Field(
        default="average",
        description="From a feature map to one vector; cls takes a transformer's class token, joint the space that a "
        "model's text tower shares (hf/ models of the CLIP and SigLIP families), so that words can be searched for.",
    )
    p: float = Field(default=3.0, ge=1, description="The power of GeM pooling.")
    learn_p: bool = Field(default=False, description="Learn p too, at the head's rate (for gem; not for 'head').")
    levels: int = Field(default=3, ge=1, description="Scales of R-MAC's regions.")
    layer_norm: bool = Field(default=False, description="Normalise the pooled vector over its channels first.")
    dim: int | None = Field(default=128, ge=1, description="Length of the vectors; null: as long as the pooled vector.")
    head_start: Literal["random", "pca", "whitened"] = Field(
        default="random",
        description="Where the head begins: at random weights, as in the papers; at the principal components of the "
        "training features (pca), near the backbone's quality; or at those of features whose differences within a "
        "class count less (whitened), mostly above it. The recipe 'head' and a run without a recipe have whitened.",
    )
    trainable: Literal["head", "last", "lora", "all"] = Field(
        default="head",
        description="'head' trains on the frozen backbone's cached features, in seconds; 'last' also the backbone's "
        "last stages, on cached activations of those before them, in minutes; 'lora' small matrices beside a "
        "transformer's linear layers, merged into them when saved (pip install 'tophit[lora]'); 'all' trains all.",
    )
    last: int | None = Field(
        default=None,
        ge=1,
        description="How many last stages (blocks) of the backbone learn (for 'last' and 'lora'); null: for 'last' "
        "as many as hold 35% of its weights, for 'lora' all.",
    )
    lora_rank: int = Field(default=8, ge=1, description="The rank of the matrices that learn (for 'lora').")
    lora_alpha: float = Field(
        default=16.0, gt=0, description="Their product is multiplied by lora_alpha / lora_rank (for 'lora')."
    )
    freeze_batch_norm: bool = Field(
        default=True, description="Keep BatchNorm's statistics as they were loaded (not for 'head')."
    )
    freeze_batch_norm_weights: bool = Field(
        default=False, description="Keep BatchNorm's scale and shift as they were loaded too (not for 'head')."
    )
    stochastic_depth: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Chance that training leaves out the last residual block's branch, falling to 0 at the first "
        "(efficientnet-lite, resnet50; not for 'head').",
    )
    size: int | None = Field(
        default=None, ge=8, description="Side of the square input in pixels; default: the backbone's."
    )
    crop: float | None = Field(
        default=None, gt=0, le=1, description="Share of the short side that the centre crop keeps."
    )
    squash: bool = Field(
        default=False, description="Scale both sides to size / crop instead of keeping the aspect ratio."
    )

    @field_validator("trainable")
    @classmethod
    def _something_learns(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("learn_p") and (info.data.get("pooling") != "gem" or value == "head"):
            raise ValueError("learn_p needs pooling: gem and trainable: last or all")
        if value == "head" and info.data.get("dim", 1) is None:
            raise ValueError("Without dim there is no head to train; set dim, or trainable: last or all")
        return value


class Evaluation(Section):
    """How the best epoch is chosen."""

    every: int = Field(default=1, ge=1, description="Epochs between evaluations on the validation classes.")
    metric: Annotated[str, AfterValidator(_metric)] = Field(
        default="MAP@R",
        description="Metric to choose the best epoch: MAP@R, mAP, R-precision, recall@K, precision@K, ndcg@K or MAP@K; "
        "for a hierarchy also H-AP, ASI, graded-ndcg@K, or level1- before any of the first.",
    )
    jaccard: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="For images with several labels: a result is right if the labels it shares with the query are at "
        "least this share of the labels of both; null: if it shares any.",
    )
    select_on: Literal["validation", "test"] = Field(
        default="validation",
        description="Classes used to choose the best epoch. Many papers use 'test', which gives optimistic results.",
    )
    clusters: str | None = Field(
        default=None,
        description="Finally compute NMI and F1 of k-means against this column of the test rows: label, or metadata.",
    )
    keep: Literal["best", "trained"] = Field(
        default="best",
        description="'best' keeps what is best on the validation classes: the untrained backbone, the best epoch, or a "
        "mixture of the weights of both. 'trained' always keeps the best epoch, as the papers do. Without pretrained "
        "weights, without validation classes, or with select_on: test, it is always the best epoch.",
    )
    splits: int | None = Field(
        default=None,
        ge=1,
        description="Class splits over which epoch and what is kept are chosen; each further one trains once more. "
        "null: for a head, up to 5, until 20 classes were held out; else 1.",
    )
    protocol: Protocol = Field(
        default="drawn-galleries",
        description="How test sets that the manifest names (test_sets) are searched. 'drawn-galleries': one random "
        "image per class is the gallery, mean of ten draws (VehicleID's own); 'all': each image searches all others.",
    )
    test: bool = Field(default=True, description="Measure the best embedder on the test classes at the end.")
    before: bool = Field(
        default=True, description="Measure the test classes also with the backbone as it was before training."
    )
    per_query: bool = Field(default=False, description="Save the metrics of every test query in per_query.npz.")
    calibrate: bool = Field(
        default=True,
        description="Finally learn the chances of results from the validation and test classes, which training did not "
        "see, for searches with --min-chance and --precision.",
    )


class Paper(Section):
    """What a paper reports for this recipe; a finished run on the paper's data prints its own numbers next to them."""

    title: str = Field(default="", description="The paper.")
    table: str = Field(default="", description="Where it reports the numbers.")
    row: str = Field(default="", description="Which row of that table.")
    metrics: dict[str, float] = Field(
        default={},
        description="Metrics in percent, as printed; small/recall@1 is recall@1 on the test set named small. "
        "dists@intra and dists@inter are cosine distances, not percent. A run measures all that are named here.",
    )
    columns: tuple[str, ...] = Field(
        default=(), description="Further columns of the table, to be measured though the paper has no number for them."
    )

    @property
    def measured(self) -> list[str]:
        """All metrics that a run is to measure."""
        return list(dict.fromkeys((*self.metrics, *self.columns)))

    @field_validator("metrics", "columns")
    @classmethod
    def _known(cls, value: Any) -> Any:
        for name in value:
            if name not in (*CLUSTERING, *SPREAD):
                _metric(name.rpartition("/")[2])
        return value


class Checkpoint(Section):
    """How often to save the state of the run."""

    minutes: float = Field(
        default=5.0,
        ge=0,
        description="Most minutes between checkpoints; each evaluation writes one too. 0: every step.",
    )
    keep: int = Field(default=2, ge=1, description="How many of the last checkpoints to keep.")


class Recipe(Section):
    """A whole run."""

    seed: int = Field(default=0, ge=0, description="Fixes everything random.")
    device: Annotated[str, AfterValidator(_known_to(check_device))] = Field(
        default="auto", description="auto (a GPU if there is one), cpu, cuda, cuda:1, mps."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32",
        description="Precision of the embedder; fp16 scales the loss. Losses are always computed in fp32.",
    )
    log: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = Field(
        default=("tensorboard",), description="Where metrics go besides metrics.jsonl; the package must be installed."
    )
    data: Data
    embedder: Embedder = Embedder()
    loss: Loss = Field(default_factory=lambda: section_of("loss", "proxy-anchor")())
    miner: Miner = Field(default_factory=lambda: section_of("miner", "none")())
    method: Method = Field(default_factory=lambda: section_of("method", "plain")())
    batches: Batches = Field(default_factory=lambda: section_of("sampler", "balanced")())
    memory: Memory = Memory()
    consistency: Consistency = Consistency()
    words: Words = Words()
    augment: Augment = Augment()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpoint = Checkpoint()
    paper: Paper = Paper()

    def to_yaml(self) -> str:
        """Return the recipe as YAML, every field written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
