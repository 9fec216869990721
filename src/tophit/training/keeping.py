"""What a run keeps: the best, on validation classes, of the untrained embedder, the trained one, and mixtures of both.

So a run whose training hurts gives back the backbone it began with, and says so.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tophit.data.manifest import ImageRow, Manifest
from tophit.evaluation import paired_difference
from tophit.files import read_json_lines, replace_file
from tophit.methods import Stepper
from tophit.models.embedder import Embedder, load
from tophit.recipe import Recipe
from tophit.training.building import make_embedder
from tophit.training.devices import on_first
from tophit.training.evaluate import metrics_of_vectors
from tophit.training.proxies import remove_proxies
from tophit.training.run import Run
from tophit.training.run_rows import RunRows
from tophit.training.sources import shared_embeddings, shared_features
from tophit.training.wanted import judging_of

BACKBONE, START, TRAINED = "backbone", "start", "trained"
SHARES = (0.25, 0.5, 0.75)
"""How much of the trained weights the mixtures have; the rest is the weights before training."""
_ENOUGH_CLASSES = 20  # held out in all splits together
_MOST_SPLITS = 5
_CLEAR, _LIKELY = 0.05, 0.2
_NO_EVIDENCE = 0.6  # a p-value above which a higher mean is no reason to give up the backbone


def mixture_name(share: float) -> str:
    """Return the name of the mixture with a share of the trained weights."""
    return f"{share:g} trained"


@dataclass(frozen=True)
class Candidates:
    """A metric of each candidate (queries,) on validation classes, the queries' classes, and each epoch's value."""

    values: Mapping[str, np.ndarray]
    labels: np.ndarray
    epochs: Mapping[int, float]

    def save(self, path: Path) -> None:
        """Write them to a file."""
        named = {f"candidate {name}": values for name, values in self.values.items()}
        epochs = np.asarray(list(self.epochs.items()), np.float64).reshape(-1, 2)
        with replace_file(path) as temporary:
            np.savez_compressed(temporary, labels=self.labels, epochs=epochs, **named)  # pyright: ignore[reportArgumentType]

    @classmethod
    def read(cls, path: Path) -> "Candidates":
        """Read them from a file."""
        with np.load(path, allow_pickle=False) as file:
            values = {
                name.removeprefix("candidate "): file[name] for name in file.files if name.startswith("candidate ")
            }
            epochs = {int(epoch): float(value) for epoch, value in file["epochs"]}
            return cls(values, file["labels"], epochs)

    def mean(self, candidate: str) -> float:
        """Return the mean of a candidate's metric."""
        return float(np.nanmean(self.values[candidate]))

    def value_at(self, epoch: int) -> float | None:
        """Return the value of the last evaluation up to an epoch, None if there was none."""
        known = [each for each in self.epochs if each <= epoch]
        return self.epochs[max(known)] if known else None


@dataclass(frozen=True)
class Choice:
    """What was kept of the candidates, by which values, and how sure that is.

    ``p`` is the p-value, by a permutation test over classes, of no difference between what was kept and its rival: the
    best untrained candidate if something trained was kept, else the best trained one.
    """

    kept: str
    rival: str
    metric: str
    values: dict[str, float]
    p: float
    classes: int
    splits: int

    @property
    def is_trained(self) -> bool:
        """Whether what was kept has learned anything."""
        return is_trained(self.kept)

    def sentence(self, epoch: int) -> str:
        """Say what was kept and why."""
        where = f"{self.classes} validation classes"
        if self.splits > 1:
            where = f"all queries of {where} in {self.splits} splits"
        ours, theirs = (100 * self.values[name] for name in (self.kept, self.rival))
        untrained = self.rival if self.is_trained else self.kept
        measured = f"{self.metric} {ours:.1f} against {theirs:.1f} of {_called(self.rival, epoch)} on {where}"
        if self.is_trained:
            text = f"Kept {_called(self.kept, epoch)}: {measured}"
        elif ours == theirs:
            text = f"Training gained nothing, so {_called(untrained, epoch)} was kept: {measured}"
        elif ours < theirs:
            text = f"Nothing shows that training helped, so {_called(untrained, epoch)} was kept: {measured}"
        else:
            text = f"Training did not help, so {_called(untrained, epoch)} was kept: {measured}"
        return f"{text} ({self.certainty()})."

    def certainty(self) -> str:
        """Say in words how sure the choice is."""
        if self.p <= _CLEAR:
            return f"p = {self.p:.2g}, a clear choice"
        if self.p <= _LIKELY:
            return f"p = {self.p:.2g}, a likely choice"
        return f"p = {self.p:.2g}: these classes can't tell them apart, so the choice is little more than a guess"

    def to_json(self, epoch: int) -> dict[str, Any]:
        """Return it as plain values, with its sentence."""
        return {**asdict(self), "sentence": self.sentence(epoch)}


def is_trained(candidate: str) -> bool:
    """Return whether a candidate has learned anything."""
    return candidate not in (BACKBONE, START)


def _called(candidate: str, epoch: int) -> str:
    if candidate == BACKBONE:
        return "the untrained backbone"
    if candidate == START:
        return "the untrained backbone with the head it began with"
    if candidate == TRAINED:
        return f"the trained embedder (epoch {epoch})"
    share = float(candidate.removesuffix(" trained"))
    return f"the weights {share:.0%} of the way from untrained to trained (epoch {epoch})"


def choose(metric: str, own: Candidates, splits: Sequence[Candidates] = ()) -> Choice:
    """Choose by the mean over all queries of all splits; a higher one counts only if it may be more than chance.

    Otherwise what was changed least is kept: the backbone before its first head, both before anything trained.
    """
    parts = [own, *splits]
    labels = np.concatenate([part.labels for part in parts])
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in own.values}
    means = {name: float(np.nanmean(each)) for name, each in values.items()}

    def p_of(one: str, other: str) -> float:
        return paired_difference(values[one], values[other], labels).p_permutation

    def better(one: str, other: str) -> bool:
        return means[one] > means[other] and p_of(one, other) <= _NO_EVIDENCE

    untrained = START if START in means and better(START, BACKBONE) else BACKBONE
    learned = max((name for name in means if is_trained(name)), key=lambda name: means[name])
    kept, rival = (learned, untrained) if better(learned, untrained) else (untrained, learned)
    p = p_of(kept, rival)
    return Choice(kept, rival, metric, means, p, len(set(labels.tolist())), len(parts))


@torch.no_grad()
def mixture(start: Embedder, end: Embedder, share: float, into: Embedder) -> Embedder:
    """Fill an embedder with (1 - share) of the weights of ``start`` and ``share`` of those of ``end``.

    BatchNorm's running means and variances are mixed like weights: along the line they are near those that the mixed
    network would have, and where they are frozen they are the same. Whole numbers, such as counts, are the end's.
    """
    first, last = start.state_dict(), end.state_dict()
    mixed = {
        name: torch.lerp(first[name].to(value), value, share) if value.is_floating_point() else value
        for name, value in last.items()
    }
    into.load_state_dict(mixed)
    into.trained = end.trained
    return into.eval()


def may_keep_untrained(recipe: Recipe, selects: bool) -> bool:
    """Return whether a run may keep something else than its best epoch; ``selects``: it has validation classes."""
    fields = recipe.evaluation
    on_validation = selects and fields.select_on == "validation"
    return fields.keep == "best" and recipe.embedder.weights != "random" and on_validation


def splits_wanted(recipe: Recipe, rows: RunRows) -> int:
    """Return over how many class splits a run chooses: one if it has enough validation classes."""
    classes = len(set(rows.validation.labels))
    wanted = recipe.evaluation.splits
    if wanted is None:
        cheap = recipe.embedder.trainable == "head"  # seconds per split; others would take as long as the run itself
        wanted = min(_MOST_SPLITS, math.ceil(_ENOUGH_CLASSES / max(1, classes))) if cheap else 1
    return min(wanted, rows.folds)


def split_recipe(recipe: Recipe, fold: int) -> Recipe:
    """Return the recipe of the same training with other validation classes; it never looks at the test classes."""
    evaluation = {"test": False, "before": False, "per_query": False, "splits": 1, "calibrate": False}
    return recipe.model_copy(
        update={
            "log": (),
            "data": recipe.data.model_copy(update={"validation_fold": fold}),
            "evaluation": recipe.evaluation.model_copy(update=evaluation),
        }
    )


class Keeper:
    """Measures the candidates of a run on its validation classes, and makes the best one the run's embedder."""

    def __init__(self, run: Run, recipe: Recipe, stepper: Stepper, selection: Manifest) -> None:
        self.run, self.recipe, self.stepper, self.selection = run, recipe, stepper, selection
        self.metric = recipe.evaluation.metric

    def begin(self, embedder: Embedder) -> None:
        """Keep the embedder as it is before training."""
        if self.stepper.rank == 0:
            trained, embedder.trained = embedder.trained, "nothing"
            embedder.save(self.run.start)
            embedder.trained = trained
        on_first(self.stepper, lambda: None)  # it is complete before other processes read it

    def untrained(self) -> dict[str, float]:
        """Return the metric of the untrained candidates."""
        values, _ = self._measure({})
        return {name: float(np.nanmean(each)) for name, each in values.items()}

    def candidates(self) -> Candidates:
        """Measure all candidates; the trained one is in the run's folder ``trained``."""
        start, end, into = (self._load(folder) for folder in (self.run.start, self.run.trained, self.run.trained))
        learned = {mixture_name(share): (start, end, share, into) for share in SHARES} | {
            TRAINED: (start, end, 1.0, into)
        }
        values, labels = self._measure(learned)
        part = "validation"
        lines = read_json_lines(self.run.log_path) if self.stepper.rank == 0 else []
        epochs = {line["epoch"]: line[f"{part}/{self.metric}"] for line in lines if f"{part}/{self.metric}" in line}
        return Candidates(values, labels, epochs)

    def keep(self, choice: Choice) -> None:
        """Make what was chosen the run's embedder."""
        if choice.kept == TRAINED:
            self._load(self.run.trained).save(self.run.best)
        elif choice.kept == BACKBONE:
            make_embedder(self.recipe, head=False, device=self.stepper.device).save(self.run.best)
        elif choice.kept == START:
            self._load(self.run.start).save(self.run.best)
        else:
            share = next(share for share in SHARES if mixture_name(share) == choice.kept)
            start, end, into = (self._load(folder) for folder in (self.run.start, self.run.trained, self.run.trained))
            mixture(start, end, share, into).save(self.run.best)
        if not choice.is_trained:
            remove_proxies(self.run.best)

    def _load(self, folder: Path) -> Embedder:
        return load(folder).to(self.stepper.device)

    def _measure(
        self, learned: Mapping[str, tuple[Embedder, Embedder, float, Embedder]]
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the metric (queries,) of the untrained candidates and of mixtures, and the queries' classes."""
        rows, start = self.selection.rows, self._load(self.run.start)
        features = shared_features(self.stepper, start, rows)
        lengths = np.linalg.norm(features.values, axis=1, keepdims=True)
        found = {BACKBONE: (features.values / np.maximum(lengths, 1e-12), features.rows)}
        if self.recipe.embedder.dim is not None:
            found[START] = (start.embed_arrays(features.values), features.rows)
        for name, parts in learned.items():
            embedder = mixture(*parts)
            if embedder.trained == "head":
                found[name] = (embedder.embed_arrays(features.values), features.rows)
            else:
                embedded = shared_embeddings(self.stepper, embedder, rows, final=False)
                found[name] = (embedded.vectors, embedded.rows)

        def measure() -> tuple[dict[str, np.ndarray], np.ndarray]:
            values = {
                name: self._per_query(vectors, [rows[i] for i in good]) for name, (vectors, good) in found.items()
            }
            return values, np.asarray([rows[i].label for i in features.rows if rows[i].role != "gallery"])

        return on_first(self.stepper, measure)

    def _per_query(self, vectors: np.ndarray, rows: Sequence[ImageRow]) -> np.ndarray:
        found = metrics_of_vectors(vectors, rows, metrics=[self.metric], judging=judging_of(self.recipe))
        return found.per_query[self.metric]


def copy_embedder(source: Path, target: Path) -> None:
    """Copy the folder of an embedder, whole or not at all."""
    temporary = target.with_name(f".{target.name}.copy")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    shutil.rmtree(target, ignore_errors=True)
    temporary.replace(target)
