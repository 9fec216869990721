"""The stepper of a recipe: its device, its precision, and the processes that torchrun started.

Lightning Fabric finds devices and processes and sets up their communication and autocast. It takes two seconds to
import, so a run in one process with float32, which does not need it, does not import it.
"""

import atexit
import logging
import os
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist

from tophit.errors import TophitError, UsageError
from tophit.methods.stepper import Stepper
from tophit.models.running import check_device
from tophit.recipe import Recipe

T = TypeVar("T")
_FABRIC_NAMES = {"bf16": "bf16-mixed", "fp16": "16-mixed"}


def start_stepper(recipe: Recipe) -> Stepper:
    """Return the stepper a recipe asks for; under torchrun, connect all its processes."""
    device = choose_device(recipe.device)
    settings = {"chunk": recipe.batches.chunk, "clip": recipe.optimizer.clip}
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if recipe.precision == "fp32" and not many:
        return Stepper(device=device, **settings)
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.precision import MixedPrecision

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    places = {"devices": 1 if device.index is None else [device.index]}
    if many:
        _check_batch_norm(recipe, "each process would have its own statistics")
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        places = {"devices": local, "num_nodes": int(os.environ["WORLD_SIZE"]) // local, "strategy": "ddp"}
    mixed = None
    if recipe.precision != "fp32":
        mixed = MixedPrecision(_FABRIC_NAMES[recipe.precision], device.type)  # type: ignore[arg-type]
    fabric = Fabric(accelerator=device.type, plugins=[mixed] if mixed else None, **places)  # type: ignore[arg-type]
    if many and not dist.is_initialized():
        fabric.launch()
        atexit.register(_leave)
    return Stepper(
        device=fabric.device,
        autocast=fabric.autocast,
        scaler=mixed.scaler if mixed else None,  # type: ignore[arg-type]
        rank=fabric.global_rank,
        world=fabric.world_size,
        **settings,
    )


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def check_chunks(recipe: Recipe) -> None:
    """Raise if chunks would not give the whole batch's gradients."""
    if recipe.batches.chunk is not None:
        _check_batch_norm(recipe, "each chunk would have its own statistics, counted twice", "batches.chunk: ")


def _check_batch_norm(recipe: Recipe, reason: str, where: str = "") -> None:
    if recipe.embedder.trainable != "head" and not recipe.embedder.freeze_batch_norm:
        raise UsageError(
            f"{where}BatchNorm in training mode needs the whole batch at once ({reason}); "
            "set embedder.freeze_batch_norm to true."
        )


def choose_device(name: str) -> torch.device:
    """Return the named device; ``auto`` takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_device(name)
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"The device '{name}' is not available here: {str(error).splitlines()[0]}") from error


def on_first(stepper: Stepper, function: Callable[[], T]) -> T:
    """Call a function on the first process and return its result, or raise its error, on all."""
    if stepper.world == 1:
        return function()
    outcome: list[object] = [None, None]
    if stepper.rank == 0:
        try:
            outcome = [function(), None]
        except TophitError as error:
            outcome = [None, error]
    dist.broadcast_object_list(outcome)
    if isinstance(outcome[1], TophitError):
        raise outcome[1]
    return outcome[0]  # type: ignore[return-value]
