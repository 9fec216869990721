"""A run: the folder that holds a resolved recipe, its log, its checkpoint, its best embedder and its result."""

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.data.folders import open_data, whole_path
from tophit.data.item_rows import item_id
from tophit.data.manifest import ImageRow, Manifest
from tophit.errors import TophitError, UsageError
from tophit.files import FileLock, Locked, replace_file, write_text
from tophit.models.named import renamed
from tophit.recipe import Recipe, read_recipe
from tophit.training.run_rows import data_of, with_validation

_LOCK = ".in-progress"


@dataclass(frozen=True)
class Run:
    """The files of one run."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Open the run in a folder."""
        run = cls(Path(folder))
        if not run.recipe_path.is_file():
            raise UsageError(f"There is no run in {folder} (no {run.recipe_path.name} there).")
        return run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from training in this folder; of torchrun's processes the first one speaks for all."""
        if os.environ.get("RANK", "0") != "0":
            yield
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / _LOCK)
        except Locked as error:
            raise UsageError(
                f"The run in {self.folder} is in progress: {error.holder} is training there. Wait for it, stop it, or "
                "name another folder."
            ) from error
        except OSError as error:
            raise TophitError(f"{self.folder} can't be written: {error.strerror}.") from error
        try:
            yield
        finally:
            (self.folder / _LOCK).unlink(missing_ok=True)
            lock.release()
            with suppress(OSError):  # a recipe that was refused leaves no empty folder
                self.folder.rmdir()

    def begin(self, recipe: Recipe) -> None:
        """Make the folder, save the recipe in it, and remove files that a killed process left unfinished.

        The recipe names the data by its absolute path, so that the run can be resumed and evaluated from any folder.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(f".{self.checkpoint_path.name}.*"):
            leftover.unlink()
        data = recipe.data.model_copy(update={"manifest": whole_path(recipe.data.manifest)})
        write_text(self.recipe_path, recipe.model_copy(update={"data": data}).to_yaml())

    @property
    def checkpoint_path(self) -> Path:
        """The last checkpoint."""
        return self.folder / "checkpoint.pt"

    @property
    def recipe_path(self) -> Path:
        """The resolved recipe."""
        return self.folder / "recipe.yaml"

    @property
    def best(self) -> Path:
        """The folder of the best embedder so far."""
        return self.folder / "best"

    @property
    def log_path(self) -> Path:
        """The log: JSON lines."""
        return self.folder / "metrics.jsonl"

    @property
    def per_query_path(self) -> Path:
        """The metrics of every test query, if the recipe saves them."""
        return self.folder / "per_query.npz"

    @property
    def start(self) -> Path:
        """The folder of the embedder before training, if the run may keep it."""
        return self.folder / "start"

    @property
    def trained(self) -> Path:
        """The folder of the embedder of the best epoch, once the run has decided what to keep as ``best``."""
        return self.folder / "trained"

    @property
    def candidates_path(self) -> Path:
        """What could be kept, measured on every query of the validation classes."""
        return self.folder / "candidates.npz"

    def split(self, fold: int) -> "Run":
        """Return the run that trains with other validation classes, to choose what is kept."""
        return Run(self.folder / "splits" / str(fold))

    def forget_training(self) -> None:
        """Remove all but recipe, result and candidates: what a finished split is needed for."""
        keep = {self.recipe_path.name, "result.json", self.candidates_path.name}
        for path in self.folder.iterdir():
            if path.name not in keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def recipe(self) -> Recipe:
        """Return the run's recipe, with what its version did: it kept what was trained, and named backbones its way."""
        recipe = read_recipe(self.recipe_path, absent={"evaluation": {"keep": "trained"}})
        backbone = renamed(recipe.embedder.backbone, self._backbone_weights)
        embedder = recipe.embedder.model_copy(update={"backbone": backbone})
        return recipe.model_copy(update={"embedder": embedder})

    def _backbone_weights(self) -> set[str]:
        """Return the names of the weights of the run's backbone, as far as it saved them."""
        checkpoint = None if self.best.is_dir() else self.load_checkpoint()
        learned = checkpoint["embedder"] if checkpoint else ()
        from tophit.models.embedder import saved_weights  # here, because it imports torch

        return saved_weights(self.best) | {name.removeprefix("backbone.") for name in learned}

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, or None if it has not finished."""
        path = self.folder / "result.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def write_result(self, result: dict[str, Any]) -> None:
        """Mark the run as finished, with its measurements."""
        write_text(self.folder / "result.json", json.dumps(result, indent=2) + "\n")

    def write_per_query(self, values: dict[str, np.ndarray], labels: list[str]) -> None:
        """Keep every metric (queries,) of the test queries, and their labels."""
        with replace_file(self.per_query_path) as temporary:
            np.savez_compressed(temporary, labels=np.asarray(labels), **values)  # pyright: ignore[reportArgumentType]

    def write_bad_images(self, reasons: dict[int, str]) -> None:
        """List the images that could not be used, with the reasons."""
        path = self.folder / "bad_images.csv"
        with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("row", "reason"), *reasons.items()])

    def bad_images(self) -> list[tuple[int, str]]:
        """Return the images that could not be used: their rows in the manifest, and the reasons."""
        path = self.folder / "bad_images.csv"
        if not path.is_file():
            return []
        with path.open(newline="", encoding="utf-8") as file:
            return [(int(row), reason) for row, reason in list(csv.reader(file))[1:]]

    def save_checkpoint(self, state: dict[str, Any], keep: int = 1) -> None:
        """Write a checkpoint and keep the last ``keep`` of them."""
        from tophit.training.checkpoints import Checkpoints

        Checkpoints(self.folder, keep).save(state)

    def load_checkpoint(self, note: Callable[[str], None] = lambda sentence: None) -> dict[str, Any] | None:
        """Return the tensors and plain values of the last intact checkpoint, or None if there is none."""
        from tophit.training.checkpoints import Checkpoints

        return Checkpoints(self.folder).load(note)

    def check_new(self) -> None:
        """Refuse a folder that holds a run."""
        if self.checkpoint_path.exists():
            raise UsageError(
                f"{self.folder} already holds a run; continue it with --resume {self.folder}, or name another folder."
            )

    def last_checkpoint(self) -> str:
        """Say where the last checkpoint is."""
        found = self.checkpoint_path.is_file()
        return f"The last good checkpoint is in {self.folder}." if found else "There is no checkpoint yet."


def recipe_of_run(model: str) -> Recipe | None:
    """Return the recipe of a model that is a run, else None."""
    run = Run(Path(model))
    return run.recipe() if run.recipe_path.is_file() else None


def data_of_run(model: str, data: str | None = None) -> Manifest:
    """Open data for a model; for a run, use the run's split, so that no class it learned counts as a test class.

    Without ``data`` they are the run's own.
    """
    recipe = recipe_of_run(model)
    if recipe is None:
        if data is None:
            raise UsageError(f"Name the data: --data PATH. Only a run knows its own, and {model} is not a run.")
        return open_data(data)
    try:
        return with_validation(data_of(recipe, data), recipe)
    except TophitError as error:
        if data is not None:
            raise
        raise UsageError(f"{error} If the run's data have moved: --data PATH.") from error


def learned_images(model: str, rows: Sequence[ImageRow]) -> int:
    """Return how many of the rows a run learned from or chose its best epoch on; 0 for a model that is not a run."""
    run = Run(Path(model))
    if not run.recipe_path.is_file():
        return 0
    try:
        manifest = data_of_run(model)
    except (TophitError, OSError):  # its data are gone, so there is nothing to compare with
        return 0
    learned = {item_id(row) for row in manifest if row.split != "test"}
    return sum(item_id(row) in learned for row in rows)


def advantage_of(model: str, rows: Sequence[ImageRow]) -> str | None:
    """Return a warning if a run learned from some of the rows that it is measured on, else None."""
    learned = learned_images(model, rows)
    if not learned:
        return None
    return f"{model} learned from {learned:,} of these {len(rows):,} images, so its results on them are optimistic."
