"""``tophit plan``: the data, what each choice would take, and what to choose."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from rich.table import Table

from tophit.advice.rules import Rule, advised_choice, advised_size, rule_for
from tophit.advice.survey import Survey, survey
from tophit.advice.timing import Estimate, estimate
from tophit.data.feature_files import SUFFIX
from tophit.errors import UsageError
from tophit.models.backbones import backbone_spec
from tophit.progress import View, in_words
from tophit.recipe import Recipe, merged, read_recipe
from tophit.recipe.reading import make_recipe
from tophit.tables import as_html, as_text
from tophit.training.building import with_given_features
from tophit.training.run_rows import rows_of

CHOICES: dict[str, str] = {"head": "head", "last": "last", "all": "all"}
"""What may learn, and its value of ``embedder.trainable``."""


@dataclass(frozen=True)
class Option:
    """A choice of what learns, at a size, and what it would take."""

    trainable: str
    size: int | None
    epochs: int
    estimate: Estimate | None
    problem: str = ""  # why it can't be had, if it can't

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        found = asdict(self)
        if self.estimate is not None:
            found["estimate"]["seconds"] = self.estimate.seconds
        return found


@dataclass(frozen=True, repr=False)
class Advice:
    """The data, the options, and what to choose, each with its reason."""

    backbone: str
    data: Survey
    options: list[Option]
    trainable: str
    loss: str
    miner: str  # empty: none
    batches: dict[str, Any]
    size: int | None
    reasons: list[str]
    command: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "options": [option.to_json() for option in self.options]}

    def __repr__(self) -> str:
        table = as_text(options_table(self.options))
        return "\n".join([*self.data.sentences(), table, "Advice:", *self.reasons, self.command])

    def _repr_html_(self) -> str:
        data, advice = (
            "<br>".join(map(escape, lines)) for lines in (self.data.sentences(), [*self.reasons, self.command])
        )
        return f"<p>{data}</p>{as_html(options_table(self.options))}<p>{advice}</p>"


def plan(
    data: str,
    backbone: str | None = None,
    overrides: Sequence[str] = (),
    view: View | None = None,
    *,
    fields: Mapping[str, Any] | None = None,
) -> Advice:
    """Look at data, measure a few steps of each choice with a backbone, and advise.

    ``overrides`` such as ``loss.alpha=2`` and the nested values ``fields`` change the recipe ``head``.
    """
    view = view or View()
    given = [*([f"embedder.backbone={backbone}"] if backbone else []), *overrides]
    base = with_given_features(read_recipe("head", given, data, fields=fields))
    rows = rows_of(base)
    found = survey(rows)
    own = None if data.endswith(SUFFIX) else _own_size(base)
    size, why_size = (None, "") if own is None else advised_size(found, own)
    options = []
    for trainable, at in _wanted(data, own, size):
        view.note(f"Measuring {_called(trainable, at)} ...")
        options.append(_option(base, trainable, at))
    at_advised = {
        option.trainable: option.estimate.seconds
        for option in options
        if option.estimate is not None and option.size in (None, size)
    }
    trainable, why = advised_choice(at_advised) if own is not None else ("head", "features allow nothing else")
    rule = rule_for(found, trainable)
    batches = rule.batches(found)
    objective = f"{rule.loss} with the miner {rule.miner}" if rule.miner else rule.loss
    reasons = [f"{trainable}: {why}.", f"{objective}: {rule.reason} ({rule.page})."]
    reasons += [f"{size} pixels: {why_size}."] if size is not None else []
    command = _command(data, base, trainable, rule, batches, size if size != own else None)
    return Advice(
        base.embedder.backbone, found, options, trainable, rule.loss, rule.miner, batches, size, reasons, command
    )


def describe_run(recipe: Recipe) -> list[str]:
    """Return a few sentences about the data of a run and the time it will take, to be read before the wait."""
    recipe = with_given_features(recipe)
    found = survey(rows_of(recipe))
    time = estimate(recipe)
    parts = sorted(time.parts.items(), key=lambda part: -part[1])[:3]
    most = ", ".join(f"{name} {in_words(seconds)}" for name, seconds in parts if seconds >= 1)
    about = f"About {in_words(time.seconds)} on this machine" + (f" ({most})" if most else "")
    return [*found.sentences(), f"{about}, {time.memory / 1e9:.1f} GB of memory. Other choices: tophit plan."]


def options_table(options: Sequence[Option]) -> Table:
    """Return a table with one row per choice of what learns: an epoch, the whole run and the memory."""
    table = Table("what learns", "pixels", "an epoch", "epochs", "whole run", "memory")
    for option in options:
        found, size = option.estimate, "" if option.size is None else str(option.size)
        if found is None:
            table.add_row(option.trainable, size, "", "", f"not possible: {option.problem}", "")
            continue
        cells = (in_words(found.epoch), str(option.epochs), in_words(found.seconds), f"{found.memory / 1e9:.1f} GB")
        table.add_row(option.trainable, size, *cells)
    return table


def _own_size(recipe: Recipe) -> int:
    """Return the side of the input that the recipe names, or that the backbone was trained at."""
    return recipe.embedder.size or backbone_spec(recipe.embedder.backbone).preprocessing.size


def _wanted(data: str, own: int | None, size: int | None) -> list[tuple[str, int | None]]:
    """Return what to measure: a head at the backbone's size; what else learns also at the advised size and at half."""
    if data.endswith(SUFFIX) or own is None:
        return [("head", None)]
    sizes = sorted({own, size or own, max(32, own // 2)}, reverse=True)
    return [("head", own), *((trainable, at) for trainable in CHOICES if trainable != "head" for at in sizes)]


def _option(base: Recipe, trainable: str, size: int | None) -> Option:
    fields: dict[str, Any] = {"embedder": {"trainable": CHOICES[trainable]}}
    if size is not None:
        fields["embedder"]["size"] = size
    recipe = make_recipe(merged(base.model_dump(mode="json"), fields))
    try:
        return Option(trainable, size, recipe.schedule.epochs, estimate(recipe))
    except UsageError as error:  # such as stages that a backbone does not describe
        return Option(trainable, size, recipe.schedule.epochs, None, str(error))


def _called(trainable: str, size: int | None) -> str:
    return trainable if size is None else f"{trainable} at {size} pixels"


def _command(data: str, base: Recipe, trainable: str, rule: Rule, batches: dict[str, Any], size: int | None) -> str:
    """Return the command that trains as advised."""
    fields = {"embedder.backbone": base.embedder.backbone} if base.embedder.backbone != "efficientnet-lite0" else {}
    fields |= {"embedder.trainable": trainable} if trainable != "head" else {}
    fields |= {} if size is None else {"embedder.size": size}
    fields |= {"loss": rule.loss} if rule.loss != "proxy-anchor" else {}
    fields |= {"miner": rule.miner} if rule.miner else {}
    fields |= {f"batches.{name}": value for name, value in batches.items()}
    if data.endswith(SUFFIX):
        fields.pop("embedder.backbone", None)
    settings = " ".join(f"--set {name}={value}" for name, value in fields.items())
    return f"tophit train head --data {data} --run runs/mine {settings}"
