"""The log of a run: JSON lines always, and TensorBoard, MLflow or Weights & Biases where the recipe names them."""

import json
import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tophit.errors import UsageError
from tophit.recipe import Recipe
from tophit.training.run import Run

_CURVE_SECONDS = 0.1  # between two points of a curve; more are not visible, and writing them slows fast steps by 2%


class Sink(Protocol):
    """A destination for the numbers of a step."""

    def write(self, step: int, seconds: float, values: dict[str, float]) -> None:
        """Accept the numbers of a step, logged at a time (seconds since 1970)."""
        ...

    def flush(self) -> None:
        """Write out what was accepted."""
        ...

    def close(self) -> None:
        """Finish."""
        ...


class Log:
    """The run's log. A resumed run drops the lines written after its checkpoint.

    Lines are gathered and written at most once a second, so that a fast step does not wait for a slow disk.
    """

    def __init__(self, run: Run, recipe: Recipe, keep_bytes: int, step: int) -> None:
        self._sinks = [_SINKS[name](run.folder, recipe, step) for name in dict.fromkeys(recipe.log)]
        run.log_path.touch()
        os.truncate(run.log_path, min(keep_bytes, run.log_path.stat().st_size))
        self._file = run.log_path.open("a", encoding="utf-8")
        self._waiting: list[tuple[int, float, dict[str, Any]]] = []
        self._written = time.monotonic()

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Append one line; numbers also go to the other destinations."""
        self._waiting.append((step, time.time(), values))
        if time.monotonic() - self._written >= 1:
            self._pass_on()
            self._file.flush()

    def _pass_on(self) -> None:
        lines = [json.dumps({"step": step, **values}) for step, _, values in self._waiting]
        self._file.writelines(f"{line}\n" for line in lines)
        for sink in self._sinks:
            for step, seconds, values in self._waiting:
                sink.write(step, seconds, {name: value for name, value in values.items() if isinstance(value, float)})
        self._waiting.clear()
        self._written = time.monotonic()

    def flush(self) -> int:
        """Flush to the disk and return the log's length in bytes."""
        self._pass_on()
        self._file.flush()
        os.fsync(self._file.fileno())
        for sink in self._sinks:
            sink.flush()
        return self._file.tell()

    def close(self) -> None:
        """Close all files and destinations."""
        try:
            self._pass_on()
        finally:
            self._file.close()
            for sink in self._sinks:
                sink.close()


class _TensorBoard:
    """Event files: one event has all numbers of a step. Some fast steps are left out; metrics.jsonl has them all."""

    def __init__(self, folder: Path, recipe: Recipe, step: int) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        events: Any = event_pb2
        summaries: Any = summary_pb2  # generated modules, whose names type checkers don't know
        self._event, self._summary = events.Event, summaries.Summary
        self._writer = EventFileWriter(str(folder / "tensorboard"), max_queue_size=10_000)  # steps never wait for it
        start = events.SessionLog(status=events.SessionLog.START)  # hides what a stopped process wrote from here on
        self._writer.add_event(events.Event(wall_time=time.time(), step=step + 1, session_log=start))
        self._next = 0.0

    def write(self, step: int, seconds: float, values: dict[str, float]) -> None:
        if "loss" in values:
            if seconds < self._next:
                return
            self._next = seconds + _CURVE_SECONDS
        numbers = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._writer.add_event(self._event(wall_time=seconds, step=step, summary=self._summary(value=numbers)))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _MLflow:
    """An MLflow run, configured by its environment variables; a resumed run continues in the same one."""

    def __init__(self, folder: Path, recipe: Recipe, step: int) -> None:
        self._mlflow = _import("mlflow")
        known = folder / "mlflow_run.txt"
        earlier = known.read_text(encoding="utf-8") if step and known.is_file() else None
        run = self._mlflow.start_run(run_id=earlier, run_name=None if earlier else folder.name)
        known.write_text(run.info.run_id, encoding="utf-8")
        if earlier is None:
            self._mlflow.log_params(_flat(recipe.model_dump(mode="json")))

    def write(self, step: int, seconds: float, values: dict[str, float]) -> None:
        # MLflow rejects '@' in names.
        self._mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in values.items()}, step=step)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        self._mlflow.end_run()


class _WandB:
    """A Weights & Biases run in the project 'tophit', unless its environment variables say otherwise."""

    def __init__(self, folder: Path, recipe: Recipe, step: int) -> None:
        wandb = _import("wandb")
        project = os.environ.get("WANDB_PROJECT", "tophit")
        self._run = wandb.init(
            project=project, name=folder.name, config=recipe.model_dump(mode="json"), dir=str(folder), resume="allow"
        )

    def write(self, step: int, seconds: float, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        self._run.finish()


_SINKS: dict[str, Callable[[Path, Recipe, int], Sink]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _WandB,
}


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"log: {name} is not installed; pip install {name}, or leave it out of the recipe.") from error


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested fields under paths such as loss.alpha."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
