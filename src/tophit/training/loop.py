"""The training loop: epochs of steps, evaluations, checkpoints; if interrupted anywhere, it continues exactly."""

import math
import shlex
import shutil
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tophit import interrupts
from tophit.batches import ConfusedBatchSampler
from tophit.data.dataset import explained
from tophit.data.manifest import Manifest
from tophit.embedding.rows import EmbeddedRows
from tophit.errors import Interrupted, NonFinite, TophitError
from tophit.methods import Method, TrainingBatch
from tophit.models.embedder import load
from tophit.models.learned import LearnedClasses
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.training.activation_source import ActivationSource
from tophit.training.beginning import begin_at_components, selection_note
from tophit.training.building import build_method, check_recipe, make_embedder, make_sampler, with_given_features
from tophit.training.checkpoints import is_disk_full
from tophit.training.devices import check_chunks, on_first, start_stepper
from tophit.training.evaluate import metrics_of_vectors
from tophit.training.final_test import FinalTest
from tophit.training.keeping import (
    SHARES,
    Candidates,
    Keeper,
    choose,
    copy_embedder,
    may_keep_untrained,
    split_recipe,
    splits_wanted,
)
from tophit.training.kinds_taken import check_labels, sees_paths
from tophit.training.learning import Learning, prepare_learning, trained_part
from tophit.training.log import Log
from tophit.training.optimizer import WeightAverage, rate_factor
from tophit.training.proxies import count_centres, save_proxies
from tophit.training.result import TrainingResult
from tophit.training.run import Run
from tophit.training.run_rows import has_pairs, rows_of
from tophit.training.snapshots import Snapshots
from tophit.training.sources import BadImages, FeatureSource, ImageSource, Source
from tophit.training.suited_batches import size_note
from tophit.training.time_left import TimeLeft
from tophit.training.wanted import judging_of
from tophit.training.words import words_note

_SHOW_EVERY = 0.1  # seconds; a terminal can't show more


def train(recipe: Recipe, folder: str | Path, view: View | None = None) -> TrainingResult:
    """Train with a recipe in a new run folder and return its result: metrics on validation and test classes."""
    run = Run(Path(folder))
    run.check_new()
    with run.held():
        shutil.rmtree(run.split(0).folder.parent, ignore_errors=True)  # of a run that was stopped before its first step
        return TrainingResult(folder, _Training(run, recipe, view or View()).run_to_end())


def resume(folder: str | Path, view: View | None = None) -> TrainingResult:
    """Continue a run from its last checkpoint, as if it had never stopped; a finished run returns its result."""
    run = Run.open(folder)
    result = run.result()
    if result is not None:
        return TrainingResult(folder, result)
    with run.held():
        return TrainingResult(folder, _Training(run, run.recipe(), view or View()).run_to_end())


class _Training:
    """One run in progress; ``whole`` is the run that the user named, if this one is only a split of it."""

    def __init__(self, run: Run, recipe: Recipe, view: View, whole: Run | None = None) -> None:
        recipe = with_given_features(recipe)
        check_chunks(recipe)
        check_recipe(recipe)
        self.run, self.recipe, self.whole = run, recipe, whole or run
        self.stepper = start_stepper(recipe)
        self.first = self.stepper.rank == 0  # only the first process writes and shows anything
        self.view = view = view if self.first else View()
        self.rows = rows_of(recipe)
        if left_out := self.rows.whole.left_out:
            view.note(left_out)
        if note := check_labels(recipe, self.rows.train.kind):
            view.note(note)
        self.selection = self.rows.test if recipe.evaluation.select_on == "test" else self.rows.validation
        self.selects = has_pairs(self.selection)
        if note := selection_note(recipe, self.rows, self.selection, self.selects):
            view.note(note)
        keeps = may_keep_untrained(recipe, self.selects)
        self.keeper = Keeper(run, recipe, self.stepper, self.selection) if keeps else None
        self.splits = self._learn_splits() if self.keeper else []
        torch.manual_seed(recipe.seed)
        self.embedder = make_embedder(recipe, device=self.stepper.device)
        if self.rows.train.kind != "several":
            self.embedder.learned = LearnedClasses.of(self.rows.train.labels)
        if note := words_note(recipe, self.embedder):
            view.note(note)
        self.bad = BadImages(recipe.data.max_bad_images, view.note)
        self.source = self._make_source(self.rows.train)
        is_new = not run.checkpoint_path.is_file()
        if is_new:
            begin_at_components(recipe, self.embedder, self.source, self.rows.train, self.stepper, view)
        if self.rows.train.kind != "several" and (note := size_note(recipe, self.source.numbers.classes.tolist())):
            view.note(note)
        if coverage := getattr(self.source.sampler, "coverage", None):
            view.note(coverage)
        self.embedder.trained = trained_part(recipe)  # not before: features until here are those of the plain backbone
        prepare_learning(recipe, self.embedder)
        self.stepper.shares(self.embedder.parameters(), self.embedder.dim)
        self.method: Method = build_method(recipe, self.embedder, self.source, self.stepper)
        self.learning = Learning(recipe, self.embedder)
        self.average = WeightAverage(self.learning.weights(), recipe.optimizer.ema) if recipe.optimizer.ema else None
        self.total_steps = recipe.schedule.epochs * len(self.source.sampler)
        self.base_lrs = [group["lr"] for group in self._groups()]
        self.snapshots = Snapshots(
            run,
            recipe,
            self.rows,
            self.embedder,
            self.learning,
            self.method,
            self.stepper,
            self.average,
            self.source.sampler,
        )
        self.position, log_bytes = self.snapshots.restore(view.note)
        self.bad.reasons = dict(self.position.bad)
        self.log: Log | None = None
        if self.first:
            run.begin(recipe)
            self.log = Log(run, recipe, log_bytes, self.position.step)
        self._begin_keeping(is_new)
        self.time_left = TimeLeft(
            recipe.schedule.epochs,
            len(self.source.sampler),
            recipe.schedule.warmup_epochs if recipe.embedder.trainable != "head" else 0,
            recipe.evaluation.every,
            self._final_evaluations(),
        )
        self.last_save = self.last_shown = self.started = time.monotonic()
        self.seconds_before = self.position.seconds
        self.shown_step = self.position.step

    def _final_evaluations(self) -> float:
        """Return how many evaluations the work after the last epoch is like, by the number of images."""
        tests = 0.0
        if self.recipe.evaluation.test and len(self.selection):
            tests = (1 + self.recipe.evaluation.before) * len(self.rows.test) / len(self.selection)
        return tests + (len(SHARES) + 1 if self.keeper else 0)

    def _learn_splits(self) -> list[Candidates]:
        """Train with other validation classes, if there are too few, and return what was measured on them."""
        count = splits_wanted(self.recipe, self.rows)
        if count == 1:
            return []
        classes = count * len(set(self.selection.labels))
        self.view.note(f"These are few classes to choose by, so {count} splits, with {classes} classes, are tried.")
        if self.first:
            self.run.begin(self.recipe)
        progress = self.view.track("Class splits")
        return [self._learn_split(fold) for fold in progress(range(1, count), count - 1)]

    def _learn_split(self, fold: int) -> Candidates:
        split = self.run.split(fold)
        if split.result() is None:
            recipe = split_recipe(self.recipe, fold)
            try:
                _Training(split, recipe, View(), self.whole).run_to_end()
            except KeyboardInterrupt:
                raise self._interrupted() from None
            if self.first:
                split.forget_training()
        return on_first(self.stepper, lambda: Candidates.read(split.candidates_path))

    def _begin_keeping(self, is_new: bool) -> None:
        """Keep the embedder as it is before training, and measure it and the backbone on the validation classes."""
        if self.keeper is None:
            return
        if not is_new:
            if not self.position.trained_apart and self.run.trained.is_dir() and self.first:
                copy_embedder(self.run.trained, self.run.best)  # an earlier checkpoint than the last one is continued
            return
        self.keeper.begin(self.embedder)
        own, name = self.keeper.untrained(), self.recipe.evaluation.metric
        found = {
            part: float(np.mean([value, *(split.mean(part) for split in self.splits)])) for part, value in own.items()
        }
        if self.log is not None:
            self.log.write(0, {"epoch": 0, **{f"{part}/{name}": value for part, value in found.items()}})
        shown = ", ".join(f"{value:.4f} ({part})" for part, value in found.items())
        self.view.note(f"epoch 0: validation {name} {shown}")

    def _make_source(self, train: Manifest) -> Source:
        deal = self.stepper, partial(make_sampler, self.recipe), sees_paths(self.recipe)
        shared = self.embedder, train, self.selection, self.bad
        if self.recipe.embedder.trainable == "last":
            return ActivationSource(self.recipe, *shared, self.view, *deal)
        if self.recipe.embedder.trainable == "head":
            progress = self.view.track("Features")
            return FeatureSource(*shared, progress, *deal)
        return ImageSource(self.recipe, *shared, *deal)

    def run_to_end(self) -> dict[str, Any]:
        """Learn through the remaining epochs, then measure the best embedder on the test classes."""
        try:
            interrupts.check()
            with interrupts.stop_signals() as stop, self.view.steps(self.total_steps, self.position.step):
                while self.position.epoch < self.recipe.schedule.epochs and not self._is_patience_over():
                    self._learn_epoch(stop)
            with interrupts.stop_at_once():
                result = self._result()
            if self.first:
                self.run.write_result(result)
            return result
        except KeyboardInterrupt:
            if not self.run.checkpoint_path.is_file():
                raise
            raise self._interrupted() from None
        except RuntimeError as error:  # a worker's end is reported by a signal, at any point in training
            meaning = explained(error)
            if meaning is error:
                raise
            raise meaning from error
        except OSError as error:
            if not is_disk_full(error):
                raise
            raise TophitError(
                f"The disk of {self.run.folder} is full. {self.run.last_checkpoint()} Make room, then continue with: "
                f"{self._resume_command()}"
            ) from error
        finally:
            self.source.close()
            self._close_log()

    def _close_log(self) -> None:
        try:
            if self.log is not None:
                self.log.close()
        except OSError:  # a full disk was reported already, or loses only the log's last lines
            pass

    def _is_patience_over(self) -> bool:
        patience = self.recipe.schedule.patience
        return patience is not None and self.selects and self.position.worse >= patience

    def _learn_epoch(self, stop: interrupts.Stop) -> None:
        position = self.position
        self._mine_classes()
        self.learning.begin_epoch(position.epoch)
        self.method.begin_epoch(position.epoch)
        began = time.monotonic()
        for batch in self.source.batches(position.epoch, position.batch):
            self.stepper.stop_asked = stop.asked
            if len(batch.labels):
                self._learn_step(batch)
            now = time.monotonic()
            self.time_left.took(self.time_left.kind(position.epoch), now - began)
            began = now
            position.step += 1
            position.batch += 1
            self.stepper.stop_asked = stop.asked  # in one process a stop is known at once
            if self.stepper.stop:
                self._save()
                raise self._interrupted()
            if self.first and time.monotonic() - self.last_save >= 60 * self.recipe.checkpoint.minutes:
                self._save()
        position.epoch, position.batch = position.epoch + 1, 0
        last = position.epoch == self.recipe.schedule.epochs
        if last or position.epoch % self.recipe.evaluation.every == 0:
            began = time.monotonic()
            with self.average.in_place() if self.average else nullcontext():
                self._evaluate()
            self.time_left.took("evaluation", time.monotonic() - began)
            self._save()

    def _mine_classes(self) -> None:
        """Let a sampler that asks for it find out which classes are confused now."""
        sampler, epoch = self.source.sampler, self.position.epoch
        if not isinstance(sampler, ConfusedBatchSampler) or not sampler.is_due(epoch):
            return
        sampler.mine(self.source.training_vectors(), epoch)
        if epoch == 0:
            self.view.note(sampler.coverage)
        if self.log is not None:
            self.log.write(self.position.step, {"epoch": epoch, "classes_with_a_near_one": sampler.near_share})

    def _resume_command(self) -> str:
        return f"tophit train --resume {shlex.quote(str(self.whole.folder))}"

    def _interrupted(self) -> Interrupted:
        where = f"at step {self.position.step}" if hasattr(self, "position") else "before the first step"
        return Interrupted(f"Stopped {where}. Continue with: {self._resume_command()}")

    def _groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of all optimizers."""
        return [group for optimizer in self.method.optimizers for group in optimizer.param_groups]

    def _learn_step(self, batch: TrainingBatch) -> None:
        step = self.position.step
        factor = rate_factor(self.recipe.schedule, step, len(self.source.sampler))
        for group, lr in zip(self._groups(), self.base_lrs, strict=True):
            group["lr"] = lr * factor
        try:
            values = self.method.step(batch)
        except NonFinite as error:
            raise TophitError(f"Step {step + 1} was not taken. {error} {self._where_and_what(batch)}") from error
        if self.average is not None:
            self.average.update()
        loss, highest = float(values["loss"]), self.recipe.schedule.stop_above
        if not math.isfinite(loss) or (highest is not None and loss > highest):
            raise self._exploded(loss, batch)
        used = self._tuples_so_far(values)
        if self.log is None:
            return
        if "warning" in values:
            self.view.note(f"Step {step + 1}: {values['warning']}")
        self.log.write(step + 1, {"epoch": self.position.epoch + 1, **values, **used, "lr_factor": factor})
        now = time.monotonic()
        if now - self.last_shown >= _SHOW_EVERY or step + 1 == self.total_steps:
            self.view.step(loss, step + 1 - self.shown_step)
            self.view.time_left(step + 1, self.total_steps, loss, self.time_left.left(step + 1))
            self.last_shown, self.shown_step = now, step + 1

    def _tuples_so_far(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Return what the log says of pairs or triplets: how many were used since the run began."""
        if "tuples" not in values:
            return {}
        self.position.tuples += values["tuples"]
        return {"tuples": self.position.tuples}

    def _exploded(self, loss: float, batch: TrainingBatch) -> TophitError:
        return TophitError(
            f"The loss became {loss} at step {self.position.step + 1}; lower optimizer.head.lr or "
            f"optimizer.backbone.lr, or set optimizer.clip. {self._where_and_what(batch)}"
        )

    def _where_and_what(self, batch: TrainingBatch) -> str:
        """Return what is needed to investigate a failed step: the last checkpoint and the batch's images."""
        files = self.source.paths(batch.rows)
        shown = ", ".join(str(path) for path in files[:8]) + (f" and {len(files) - 8} more" if len(files) > 8 else "")
        return f"{self.run.last_checkpoint()} The batch's images: {shown}"

    def _evaluate(self) -> None:
        """Measure on the selection classes, and keep the embedder if it is the best so far (or there are none)."""
        position = self.position
        if not self.selects:
            position.best_epoch = position.epoch
            self._keep_best()
            return
        name, part = self.recipe.evaluation.metric, self.recipe.evaluation.select_on
        embedded = self.source.validation_vectors()
        for row, reason in embedded.bad.items():
            self.bad.add(self.selection.number(row), reason)
        metrics = self._metrics_on_selection(embedded)
        if self.log is not None:
            self.log.write(position.step, {"epoch": position.epoch, **{f"{part}/{k}": v for k, v in metrics.items()}})
        others = [value for split in self.splits if (value := split.value_at(position.epoch)) is not None]
        value = float(np.mean([metrics[name], *others]))
        self.view.evaluated(position.epoch, name, value, metrics["recall@1"], 1 + len(others))
        position.worse += 1
        if value >= position.best_value:  # of equal values keep the later, which has learned more
            position.worse = 0 if value > position.best_value else position.worse
            position.best_value, position.best_epoch = value, position.epoch
            self._keep_best()

    def _metrics_on_selection(self, embedded: EmbeddedRows) -> dict[str, float]:
        """Return the metrics of vectors of the selection's rows."""
        name, rows = self.recipe.evaluation.metric, [self.selection.rows[i] for i in embedded.rows]
        judging = judging_of(self.recipe)
        return on_first(
            self.stepper, lambda: dict(metrics_of_vectors(embedded.vectors, rows, metrics=[name], judging=judging))
        )

    def _keep_best(self) -> None:
        if self.first:
            self.embedder.save(self.run.best)
            save_proxies(self.method.loss, self.source.class_names, self.run.best)

    def _result(self) -> dict[str, Any]:
        position, on_test = self.position, self.recipe.evaluation.select_on == "test"
        chosen = {self.recipe.evaluation.metric: position.best_value} if self.selects else {}
        result: dict[str, Any] = {
            "best_epoch": position.best_epoch,
            "validation": {} if on_test else chosen,
            "steps": position.step,
            "seconds": round(self._seconds(), 3),
        }
        if on_test:
            result["optimistic"] = "the best epoch was chosen on the test classes"
        if position.epoch < self.recipe.schedule.epochs:
            result["stopped_early"] = position.epoch
        result |= self._settle()
        on_first(self.stepper, lambda: None)  # the best embedder is complete before other processes read it
        result |= count_centres(self.run.folder)
        test = FinalTest(self.run, self.recipe, self.rows, self.stepper, self.bad, self.view)
        kept = load(self.run.best).to(self.embedder.device)
        result |= test.after(kept)
        result |= test.calibrate(kept)
        if self.recipe.embedder.weights != "random" and self.recipe.evaluation.before:
            result |= test.before(make_embedder(self.recipe, head=False, device=self.stepper.device))
        if self.first:
            self.run.write_bad_images(self.bad.reasons)
        return result

    def _settle(self) -> dict[str, Any]:
        """Keep the best, on the validation classes, of the untrained embedder, the best epoch, and mixtures of both."""
        if self.keeper is None:
            return {}
        if not self.position.trained_apart:
            if self.first:
                copy_embedder(self.run.best, self.run.trained)
            self.position.trained_apart = True
            self._save()
        if self.log is not None:
            self.log.flush()
        on_first(self.stepper, lambda: None)  # the copy is complete before other processes read it
        found = self.keeper.candidates()
        choice = choose(self.recipe.evaluation.metric, found, self.splits)
        if self.first:
            found.save(self.run.candidates_path)
            self.keeper.keep(choice)
        return {"kept": choice.to_json(self.position.best_epoch)}

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def _save(self) -> None:
        """Write everything that is needed to continue exactly."""
        if self.log is None:
            return
        self.position.seconds = self._seconds()
        self.position.bad = self.bad.reasons
        self.snapshots.save(self.position, self.log.flush())
        self.last_save = time.monotonic()
