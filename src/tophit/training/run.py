"""A run: the folder that holds a resolved recipe, its log, its checkpoint, its best embedder and its result."""

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tophit.data.folders import open_data
from tophit.data.manifest import Manifest
from tophit.data.splits import hold_out_validation
from tophit.errors import TophitError, UsageError
from tophit.files import replace_file, write_text
from tophit.recipe import Recipe, read_recipe


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

    def begin(self, recipe: Recipe) -> None:
        """Make the folder, save the recipe in it, and remove what a killed process left half written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(f".{self.checkpoint_path.name}.*"):
            leftover.unlink()
        write_text(self.recipe_path, recipe.to_yaml())

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

    def recipe(self) -> Recipe:
        """Return the run's recipe."""
        return read_recipe(self.recipe_path)

    def result(self) -> dict[str, Any] | None:
        """Return what the finished run measured, or None if it has not finished."""
        path = self.folder / "result.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def write_result(self, result: dict[str, Any]) -> None:
        """Mark the run as finished, with its measurements."""
        write_text(self.folder / "result.json", json.dumps(result, indent=2) + "\n")

    def write_bad_images(self, reasons: dict[int, str]) -> None:
        """List the images that could not be used, with the reasons."""
        path = self.folder / "bad_images.csv"
        with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("row", "reason"), *reasons.items()])

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Write the checkpoint; the one before stays until this one is whole on disk."""
        with replace_file(self.checkpoint_path) as temporary:
            torch.save(state, temporary)

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the last checkpoint's tensors and plain values, or None if there is none."""
        path = self.checkpoint_path
        if not path.is_file():
            return None
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises a handful of unrelated types for a damaged file
            raise TophitError(
                f"The checkpoint {path} can't be read ({error}); delete it to start the run anew."
            ) from error


def data_of_run(model: str, data: str) -> Manifest:
    """Open data for a model; for a run with its own split, so that no class it learned is taken for a test class."""
    run = Run(Path(model))
    if not run.recipe_path.is_file():
        return open_data(data)
    recipe = run.recipe()
    manifest = open_data(data, recipe.data.test_share, recipe.seed)
    return hold_out_validation(manifest, recipe.data.validation_share, recipe.seed)


class Log:
    """The run's log: JSON lines and TensorBoard. A resumed run drops the lines written after its checkpoint."""

    def __init__(self, run: Run, keep_bytes: int, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        run.log_path.touch()
        os.truncate(run.log_path, min(keep_bytes, run.log_path.stat().st_size))
        self._file = run.log_path.open("a", encoding="utf-8")
        self._board = SummaryWriter(run.folder / "tensorboard", purge_step=step + 1)

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Append one line; numbers also go to TensorBoard."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items():
            if isinstance(value, float):
                self._board.add_scalar(name, value, step)

    def flush(self) -> int:
        """Write through to the disk and return the log's length in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._board.flush()
        return self._file.tell()

    def close(self) -> None:
        """Close both."""
        self._file.close()
        self._board.close()
