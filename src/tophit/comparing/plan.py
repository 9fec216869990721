"""The plan of a comparison: one typed YAML file that names the data, the embedder, the budget and the candidates."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from tophit.errors import UsageError
from tophit.recipe import Recipe, Section, make_recipe, merged, read_recipe
from tophit.recipe.reading import problems_in
from tophit.recipe.yaml_text import parse_yaml

_OF_A_RECIPE = ("loss", "miner", "method", "batches", "memory", "augment", "optimizer")  # the plan sets the rest
_OF_EVERY_RUN = {
    "log": [],
    "checkpoint": {"keep": 1},
    # Candidates are compared as trained: a kept backbone would look like a tie.
    "evaluation": {"before": False, "keep": "trained", "per_query": True, "calibrate": False},
}
_SEARCH_SEED = 1_000_003  # never the seed of a measured run, so settings are not tuned on a measured run's split
_PRESETS = files("tophit.comparing") / "shipped"


class Range(Section):
    """The range in which a hyper-parameter is searched."""

    low: float = Field(description="The smallest value.")
    high: float = Field(description="The largest value.")
    log: bool = Field(default=False, description="Search on a logarithmic scale, as for learning rates.")
    whole: bool = Field(default=False, description="Whole numbers only.")

    @model_validator(mode="after")
    def _in_order(self) -> "Range":
        if self.low > self.high or (self.log and self.low <= 0):
            raise ValueError("Expected low <= high, and 0 < low on a logarithmic scale")
        return self


class Candidate(Section):
    """A method to compare: a recipe, a changed recipe, or some sections of one."""

    recipe: str | None = Field(
        default=None,
        description=f"A recipe file or a shipped recipe; its sections {', '.join(_OF_A_RECIPE)} are used.",
    )
    whole: bool = Field(
        default=False,
        description="Use all sections of the recipe, with its own embedder and epochs: a row of a paper's table.",
    )
    change: dict[str, Any] = Field(default={}, description="Sections of a recipe that override all others.")
    baseline: bool = Field(default=False, description="Whether the other candidates are measured against it.")
    search: dict[str, Range | list[Any]] = Field(
        default={},
        description="Hyper-parameters to search, by path: a range or a list of values.",
    )
    note: str = Field(default="", description="A short note for the table, such as the paper.")

    @model_validator(mode="after")
    def _has_what_it_uses(self) -> "Candidate":
        if self.whole and self.recipe is None:
            raise ValueError("whole: true needs a recipe")
        return self


EPOCHS = "schedule.epochs"
"""The path of the epochs, which the search finds where measured runs learn from all classes."""


class Budget(Section):
    """The budget of every candidate."""

    seeds: int = Field(default=5, ge=1, description="Runs of each candidate that are measured on the test classes.")
    trials: int = Field(default=0, ge=0, description="Runs to search each candidate's settings first; 0: no search.")
    epochs: int = Field(default=8, ge=1, description="Epochs of every run (not of candidates with 'whole').")
    evaluations: int = Field(default=2, ge=1, description="Evaluations on validation classes in every run.")
    patience: int | None = Field(
        default=None, ge=1, description="Stop a run after this many evaluations without improvement; null: never."
    )
    all_classes: bool = Field(
        default=False,
        description="Measured runs learn from the validation classes too, for as many epochs as the best trial needed. "
        "Every candidate has at least one trial then.",
    )


class Plan(Section):
    """A comparison."""

    title: str = Field(default="Comparison", description="The title of its page.")
    data: dict[str, Any] = Field(description="The section data of the recipe, or only its manifest.")
    embedder: dict[str, Any] = Field(default={}, description="The section embedder of the recipe, the same for all.")
    common: dict[str, Any] = Field(default={}, description="Further sections that all candidates share.")
    budget: Budget = Budget()
    metric: str = Field(default="recall@1", description="The metric to compare, on the test classes.")
    select: str = Field(
        default="MAP@R", description="The metric that chooses epochs and settings, on validation classes."
    )
    metrics: tuple[str, ...] = Field(
        default=("recall@1", "MAP@R"), description="The metrics to keep for every test query."
    )
    keep_runs: bool = Field(
        default=False, description="Keep each measured run under runs/, without its checkpoints, not only its result."
    )
    candidates: dict[str, Candidate] = Field(description="The candidates by name.", min_length=1)

    @field_validator("data", mode="before")
    @classmethod
    def _manifest_alone(cls, value: Any) -> Any:
        return {"manifest": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> "Plan":
        if not isinstance(self.data.get("manifest"), str):
            raise ValueError("data needs a manifest: a file, a folder, or the set 'icons'")
        if self.metric not in self.metrics:
            raise ValueError(f"metric '{self.metric}' must be one of metrics: {', '.join(self.metrics)}")
        slugs: dict[str, str] = {}
        for name in self.candidates:
            other = slugs.setdefault(slug(name), name)
            if other != name:
                raise ValueError(f"the candidates '{other}' and '{name}' would share a folder; rename one")
        return self

    @property
    def baselines(self) -> list[str]:
        """The names of the candidates that the others are measured against."""
        return [name for name, candidate in self.candidates.items() if candidate.baseline]

    def to_yaml(self) -> str:
        """Return the plan as YAML, every field written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def slug(name: str) -> str:
    """Return a name as a folder name."""
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "candidate"


def read_plan(path: str | Path) -> Plan:
    """Read a plan from a YAML file; an error names the path of each mistake."""
    path = Path(path)
    try:
        fields = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no plan at {path}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise UsageError(f"{path} must contain 'data:' and 'candidates:'.")
    return make_plan(fields, str(path))


def preset_names() -> list[str]:
    """Return the names of the plans that ship with Tophit."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _PRESETS.iterdir() if entry.name.endswith(".yaml"))


def preset_fields(name: str) -> dict[str, Any]:
    """Return the fields of a shipped plan, which names no data."""
    if name not in preset_names():
        raise UsageError(f"There is no preset '{name}'; choices: {', '.join(preset_names())}.")
    return yaml.safe_load((_PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))


def make_plan(fields: dict[str, Any], where: str = "the plan") -> Plan:
    """Return the plan from nested plain values; the recipe of every candidate is checked."""
    try:
        plan = Plan.model_validate(fields)
    except ValidationError as error:
        raise UsageError(problems_in(where, error, Plan)) from None
    for name, candidate in plan.candidates.items():
        try:
            recipe_of(plan, name, 0, _example(candidate))
        except UsageError as error:
            raise UsageError(f"{where}: candidate '{name}': {error}") from None
    return plan


def recipe_of(plan: Plan, name: str, seed: int, settings: dict[str, Any]) -> Recipe:
    """Return the recipe of one measured run: a candidate with a seed and the settings that its search found."""
    fields = _fields(plan, name, settings) | {"seed": seed}
    if plan.budget.all_classes:  # its length is one of the settings, and there is nothing to choose by
        fields = merged(fields, {"data": {"validation_share": 0}, "schedule": {"patience": None}})
        fields["evaluation"] = {**fields["evaluation"], "every": fields["schedule"]["epochs"]}
    return make_recipe(fields, "its recipe")


def any_recipe(plan: Plan) -> Recipe:
    """Return the recipe of some candidate: all have the same data and embedder."""
    name, candidate = next(iter(plan.candidates.items()))
    return recipe_of(plan, name, 0, _example(candidate))


def trial_recipe(plan: Plan, name: str, settings: dict[str, Any]) -> Recipe:
    """Return the recipe of one trial of a search, which never uses the test classes.

    All trials of all candidates have the same seed and so the same validation classes.
    """
    fields = merged(_fields(plan, name, settings), {"evaluation": {"test": False, "per_query": False}})
    return make_recipe(fields | {"seed": _SEARCH_SEED}, "its recipe")


def _fields(plan: Plan, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    candidate = plan.candidates[name]
    fields = _whole_recipe(plan, candidate) if candidate.whole else _within_budget(plan, candidate)
    fields = merged(fields, {"data": plan.data, "embedder": plan.embedder})
    fields = merged(fields, candidate.change)
    for path, value in settings.items():
        *sections, last = path.split(".")
        change: dict[str, Any] = {last: value}
        for section in reversed(sections):
            change = {section: change}
        fields = merged(fields, change)
    return fields


def _within_budget(plan: Plan, candidate: Candidate) -> dict[str, Any]:
    """Return the plan's sections, and those of the candidate's recipe that say how it learns."""
    epochs = plan.budget.epochs
    evaluation = {"every": max(1, epochs // plan.budget.evaluations), "metric": plan.select}
    schedule = {"epochs": epochs, "patience": plan.budget.patience}
    fields = merged(_OF_EVERY_RUN, {"evaluation": evaluation, "schedule": schedule})
    fields = merged(fields, plan.common)
    if candidate.recipe is not None:
        whole = read_recipe(candidate.recipe, data="unused").model_dump(mode="json")
        fields = merged(fields, {part: whole[part] for part in _OF_A_RECIPE})
    return fields


def _whole_recipe(plan: Plan, candidate: Candidate) -> dict[str, Any]:
    """Return all of the candidate's recipe, with what the plan changes for all candidates."""
    whole = read_recipe(str(candidate.recipe), data="unused").model_dump(mode="json")
    return merged(merged(whole, _OF_EVERY_RUN), plan.common)


def _example(candidate: Candidate) -> dict[str, Any]:
    """Return settings from a candidate's search space, to check that they make a valid recipe."""
    return {
        path: (round(where.low) if where.whole else where.low) if isinstance(where, Range) else where[0]
        for path, where in candidate.search.items()
    }
