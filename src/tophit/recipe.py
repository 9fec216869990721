"""The recipe: one typed YAML file that says all of a run. Every field is documented here and only here."""

import difflib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from tophit.errors import UsageError
from tophit.recipe_losses import Loss, ProxyAnchor
from tophit.recipe_section import Section


class Data(Section):
    """What to learn from."""

    manifest: str = Field(description="A manifest (.csv, .parquet), a folder of class folders, or the set 'icons'.")
    test_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="For a folder without train/ and test/: the share of classes kept for testing.",
    )
    validation_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Share of the training classes held out to choose the best epoch; 0 keeps the last epoch.",
    )
    merge_classes: int = Field(
        default=1,
        ge=1,
        description="Train on classes made of this many classes each; validation and test keep theirs. "
        "3 is the PNP paper's test of robustness.",
    )
    max_bad_images: int = Field(
        default=0, ge=0, description="How many unreadable images to skip, with a note, before the run stops."
    )
    workers: int = Field(default=0, ge=0, description="Processes that read images; 0 reads in the training process.")


class Embedder(Section):
    """What to train."""

    backbone: str = Field(default="efficientnet-lite0", description="The network: efficientnet-lite0 or small.")
    weights: str = Field(
        default="pretrained",
        description="Where its weights come from: pretrained, random, or a file (.safetensors, .pth).",
    )
    pooling: Literal["average", "gem"] = Field(default="average", description="From a feature map to one vector.")
    p: float = Field(default=3.0, ge=1, description="The power of GeM pooling.")
    dim: int = Field(default=128, ge=1, description="Length of the vectors.")
    trainable: Literal["head", "all"] = Field(
        default="head",
        description="'head' trains on the frozen backbone's cached features, in seconds; 'all' trains everything.",
    )
    freeze_batch_norm: bool = Field(
        default=True, description="Keep BatchNorm's statistics as they were loaded (for 'all')."
    )
    size: int | None = Field(
        default=None, ge=8, description="Side of the square input in pixels; default: the backbone's."
    )
    crop: float | None = Field(
        default=None, gt=0, le=1, description="Share of the short side that the centre crop keeps."
    )
    squash: bool = Field(
        default=False, description="Scale both sides to the input size instead of cropping the centre."
    )


class Batches(Section):
    """Which images form a batch."""

    sampler: Literal["balanced", "random"] = Field(
        default="balanced", description="'balanced': classes x per_class images; 'random': size images."
    )
    classes: int = Field(default=32, ge=1, description="Classes in a balanced batch.")
    per_class: int = Field(default=4, ge=1, description="Images of each class in a balanced batch.")
    repeat_small_classes: bool = Field(
        default=False, description="Fill groups up to per_class, repeating images of classes smaller than that."
    )
    size: int = Field(default=128, ge=1, description="Images in a random batch.")


class Augment(Section):
    """Random views of training images, where the whole network learns."""

    scale: tuple[float, float] = Field(
        default=(0.6, 1.0), description="Range of the random crop's share of the picture's area (for 'all')."
    )
    flip: bool = Field(default=True, description="Mirror half of the pictures (for 'all').")

    @field_validator("scale")
    @classmethod
    def _in_order(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1] <= 1:
            raise ValueError("Expected two shares, 0 < least <= most <= 1")
        return value


class BackboneGroup(Section):
    """How the backbone's weights move."""

    lr: float = Field(default=1e-4, ge=0, description="Learning rate of the backbone.")
    weight_decay: float = Field(default=1e-4, ge=0, description="Weight decay of the backbone.")


class HeadGroup(Section):
    """How the head's weights move."""

    lr: float = Field(default=1e-3, ge=0, description="Learning rate of the head.")
    weight_decay: float = Field(default=1e-4, ge=0, description="Weight decay of the head.")


class ProxyGroup(Section):
    """How the loss's own parameters move."""

    lr: float = Field(default=1e-2, ge=0, description="Learning rate of the loss's own parameters, such as proxies.")
    weight_decay: float = Field(default=1e-4, ge=0, description="Weight decay of the loss's own parameters.")


class Optimizer(Section):
    """How weights move."""

    name: Literal["adamw"] = Field(default="adamw", description="The optimizer.")
    backbone: BackboneGroup = BackboneGroup()
    head: HeadGroup = HeadGroup()
    proxies: ProxyGroup = ProxyGroup()


class Schedule(Section):
    """For how long."""

    epochs: int = Field(default=20, ge=1, description="Passes over the training images.")
    warmup_epochs: int = Field(
        default=1, ge=0, description="First epochs in which only head and proxies learn (for 'all')."
    )
    decay: Literal["none", "cosine"] = Field(default="cosine", description="How learning rates fall from step to step.")


class Evaluation(Section):
    """How the best epoch is found."""

    every: int = Field(default=1, ge=1, description="Epochs between evaluations on the validation classes.")
    metric: str = Field(
        default="MAP@R",
        pattern=r"^(MAP@R|mAP|R-precision|(recall|precision|ndcg)@[1-9][0-9]*)$",
        description="What chooses the best epoch: MAP@R, mAP, R-precision, recall@K, precision@K or ndcg@K.",
    )


class Checkpoint(Section):
    """What an interruption may cost."""

    minutes: float = Field(
        default=5.0,
        ge=0,
        description="Most minutes between checkpoints; each evaluated epoch writes one too. 0: every step.",
    )


class Recipe(Section):
    """A run, whole."""

    seed: int = Field(default=0, ge=0, description="Fixes everything random.")
    device: str = Field(default="auto", description="auto (a GPU if there is one), cpu, cuda, cuda:1, mps.")
    data: Data
    embedder: Embedder = Embedder()
    loss: Loss = ProxyAnchor()
    batches: Batches = Batches()
    augment: Augment = Augment()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpoint = Checkpoint()

    def to_yaml(self) -> str:
        """Return the recipe as YAML, every field written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def read_recipe(source: str | Path | None, overrides: Sequence[str] = (), data: str | None = None) -> Recipe:
    """Read a recipe from a YAML file, or a shipped one by its name, and apply overrides such as ``loss.alpha=2``.

    ``data`` is the manifest's path as it is; an override's value is YAML, in which a folder called 2024 is a number.
    """
    fields = {} if source is None else _read_yaml(_find(source))
    if data is not None:
        _section_of(fields, ["data"], "data.manifest")["manifest"] = data
    for override in overrides:
        _apply(fields, override)
    return make_recipe(fields, "the command line" if source is None else str(source))


def make_recipe(fields: dict[str, Any], where: str = "the recipe") -> Recipe:
    """Return the recipe of nested plain values; every mistake is named with its path and what would be right."""
    try:
        return Recipe.model_validate({"data": {}, **fields})
    except ValidationError as error:
        problems = [_explain(dict(problem)) for problem in error.errors()]
        raise UsageError(f"In {where}:\n" + "\n".join(f"  {problem}" for problem in problems)) from None


def recipe_names() -> list[str]:
    """Return the names of the recipes that ship with Tophit."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _shipped().iterdir() if entry.name.endswith(".yaml"))


def recipe_fields() -> Iterator[tuple[str, str, str, str]]:
    """Yield (path, type, default, description) of every field, in order."""
    yield from _fields_of(Recipe, "")


def _shipped() -> Any:
    return files("tophit") / "recipes"


def _find(source: str | Path) -> Any:
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if str(source) in recipe_names():
        return _shipped() / f"{source}.yaml"
    raise UsageError(f"There is no recipe file '{source}', and no recipe of that name: {', '.join(recipe_names())}.")


def _read_yaml(path: Any) -> dict[str, Any]:
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise UsageError(f"{path} must hold sections such as 'data:' and 'loss:', not a {type(fields).__name__}.")
    return fields


def _apply(fields: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"'{override}' does not set anything; write it as loss.alpha=2.")
    *parents, last = key.strip().split(".")
    section = _section_of(fields, parents, key)
    try:
        section[last] = _plain_value(text)
    except yaml.YAMLError as error:
        raise UsageError(f"'{override}': the value is not YAML: {error}") from error


def _section_of(fields: dict[str, Any], parents: Sequence[str], key: str) -> dict[str, Any]:
    """Return the section at a path of keys, made where there is none."""
    for parent in parents:
        below = fields.setdefault(parent, {})
        if not isinstance(below, dict):
            raise UsageError(f"'{key}': '{parent}' is a value, not a section.")
        fields = below
    return fields


def _plain_value(text: str) -> Any:
    value = yaml.safe_load(text)
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _explain(problem: dict[str, Any]) -> str:
    parts = [str(part) for part in problem["loc"]]
    path = ".".join(_without_choices(parts))
    if problem["type"] == "extra_forbidden":
        choices = sorted(_section_at(parts[:-1]).model_fields)
        return f"{path}: unknown key.{_nearest(parts[-1], choices)} Choices: {', '.join(choices)}."
    if problem["type"] == "literal_error":
        choices = _literal_choices(parts)
        value = problem["input"]
        return f"{path}: unknown value '{value}'.{_nearest(value, choices)} Choices: {', '.join(choices)}."
    if problem["type"] == "union_tag_invalid":
        choices = list(_alternatives(_section_at(parts[:-1]).model_fields[parts[-1]]))
        value = problem["ctx"]["tag"]
        return f"{path}.name: unknown value '{value}'.{_nearest(value, choices)} Choices: {', '.join(choices)}."
    if problem["type"] in ("model_attributes_type", "union_tag_not_found"):
        return f"{path}: is a section with a name and its fields, not {problem['input']!r}."
    if problem["type"] == "missing":
        return f"{path}: needs a value. {_description(parts)}".rstrip()
    if problem["type"] == "string_pattern_mismatch":
        return f"{path}: unknown value '{problem['input']}'. {_description(parts)}"
    if problem["type"] == "model_type":
        return f"{path}: is a section with {', '.join(_section_at(parts).model_fields)}, not {problem['input']!r}."
    return f"{path}: {problem['msg']}, got {problem['input']!r}. {_description(parts)}".rstrip()


def _nearest(word: Any, choices: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(word), choices, 1)
    return f" Did you mean '{near[0]}'?" if near else ""


def _section_at(parts: Sequence[str]) -> type[BaseModel]:
    """Return the section at a path; after a field with alternatives comes the name of the one chosen."""
    section: type[BaseModel] = Recipe
    alternatives: dict[str, type[BaseModel]] = {}
    for part in parts:
        info = section.model_fields.get(part)
        section = alternatives.get(part) or (info and _as_section(info)) or section
        alternatives = _alternatives(info) if info else {}
    return section


def _without_choices(parts: Sequence[str]) -> list[str]:
    """Return a path as the user writes it, without the name of the chosen alternative."""
    written: list[str] = []
    for i, part in enumerate(parts):
        before = _section_at(parts[: i - 1]).model_fields.get(parts[i - 1]) if i else None
        if before is None or part not in _alternatives(before):
            written.append(part)
    return written


def _literal_choices(parts: Sequence[str]) -> list[str]:
    return [
        str(choice) for choice in getattr(_section_at(parts[:-1]).model_fields[parts[-1]].annotation, "__args__", ())
    ]


def _description(parts: Sequence[str]) -> str:
    fields = _section_at(parts[:-1]).model_fields
    return fields[parts[-1]].description or "" if parts[-1] in fields else ""


def _as_section(info: FieldInfo) -> type[BaseModel] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _alternatives(info: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the sections a field may hold, by name; none if it is not a choice of sections."""
    kinds = [kind for kind in get_args(info.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return {kind.model_fields["name"].default: kind for kind in kinds if "name" in kind.model_fields}


def _fields_of(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, info in section.model_fields.items():
        below = _as_section(info)
        alternatives = _alternatives(info)
        if alternatives:
            default = info.default.name
            yield f"{prefix}{name}.name", " | ".join(alternatives), default, "Which of them; each has its own fields."
            for choice, kind in alternatives.items():
                for path, *rest in _fields_of(kind, f"{prefix}{name}."):
                    if path != f"{prefix}{name}.name":
                        yield path if choice == default else f"{path} ({choice})", *rest  # type: ignore[misc]
        elif below is None:
            yield f"{prefix}{name}", _type_name(info), _default_text(info), info.description or ""
        else:
            yield from _fields_of(below, f"{prefix}{name}.")


def _type_name(info: FieldInfo) -> str:
    choices = getattr(info.annotation, "__args__", None)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " | ".join(choices)
    name = getattr(info.annotation, "__name__", str(info.annotation))
    return name if choices is None else str(info.annotation).replace("NoneType", "None")


def _default_text(info: FieldInfo) -> str:
    return "(required)" if info.is_required() else str(info.default)
