"""The parts of a folder of vectors, made by the workers of a Ray cluster: Ray Data hands out the parts' rows.

Each worker loads the model once and writes whole parts, the same as ``embed_to_folder`` writes. So every machine must
see the images, the model and the folder under the same paths. A second start makes only the missing parts.
"""

import logging
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tophit.data.manifest import ImageRow
from tophit.embedding.folder import ROWS_A_PART, EmbeddedFolder, begin, finish, planned_parts, write_vectors
from tophit.errors import UsageError
from tophit.models.embedder import load
from tophit.models.runtimes import BATCH, build_runtime


def embed_on_ray(
    model: str,
    rows: Sequence[ImageRow],
    folder: str | Path,
    *,
    processes: int,
    address: str | None = None,
    device: str = "cpu",
    runtime: str | None = None,
    precision: str = "fp32",
    batch: int = BATCH,
    rows_a_part: int = ROWS_A_PART,
) -> EmbeddedFolder:
    """Write the unit vectors of rows as parts, by so many processes of the Ray cluster at an address.

    Without an address, and without ``RAY_ADDRESS``, Ray starts on this machine. The other settings are those of
    ``embed_to_folder``, and so is what is written.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError("Ray is not installed; install it with: pip install 'tophit[ray]'") from error
    folder = Path(folder).absolute()
    runner, plan = begin(load(model).to(device), rows, folder, model, runtime, precision, batch, rows_a_part, 1)
    parts = planned_parts(folder, len(rows), rows_a_part, 1)
    left = [(path, some) for path, some in parts if not path.is_file()]
    if left:
        started = not ray.is_initialized()  # a cluster that the caller is connected to is left as it was
        if started:
            ray.init(address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        try:
            items = [{"path": str(p), "first": s.start, "rows": pickle.dumps([rows[i] for i in s])} for p, s in left]
            _hand_out(items, (model, device, plan["engine"], precision, batch), processes, device)
        finally:
            if started:
                ray.shutdown()
    return finish(folder, plan, [path for path, _ in parts], runner.name)


def _hand_out(items: list[dict[str, Any]], settings: tuple[Any, ...], processes: int, device: str) -> None:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    parts = ray.data.from_items(items, override_num_blocks=len(items))
    made = parts.map_batches(
        _Worker,
        fn_constructor_args=settings,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(processes, len(items))),
        num_gpus=1 if device.startswith("cuda") else 0,
    )
    made.materialize()


class _Worker:
    """A process that holds the model and makes the parts that it is given."""

    def __init__(self, model: str, device: str, engine: str, precision: str, batch: int) -> None:
        self.embedder, self.batch = load(model).to(device), batch
        self.runtime = build_runtime(engine, self.embedder, precision)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Write parts; return their paths."""
        for path, first, rows in zip(batch["path"], batch["first"], batch["rows"], strict=True):
            write_vectors(self.embedder, self.runtime, pickle.loads(rows), int(first), Path(str(path)), self.batch)
        return {"path": batch["path"]}
