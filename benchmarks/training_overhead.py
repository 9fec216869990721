"""The cost of the training loop over a bare PyTorch loop with the same steps, and the memory of chunked batches.

The loop's own time is what it spends outside the calls that a bare loop makes too: reading a batch, forward, loss,
backward, optimizer. Both loops take turns in one process, on the icon set with EfficientNet-Lite0. Seconds are CPU time
of all threads: wall time would also measure what else the machine does.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from tophit.interrupts import Stop
from tophit.losses import PNPLoss
from tophit.methods import PlainMethod, Stepper, TrainingBatch
from tophit.models import build_embedder
from tophit.progress import View
from tophit.recipe import Recipe, read_recipe
from tophit.training.loop import _Training
from tophit.training.run import Run


class _Enough(Exception):
    """The steps to be timed are done."""


def recipe_for(trainable: str, epochs: int) -> Recipe:
    """Return the icons' recipe with a trained or frozen backbone, without evaluations in between."""
    never = ["schedule.warmup_epochs=0", "evaluation.every=100000", "data.validation_share=0", "checkpoint.minutes=5"]
    return read_recipe("icons", [f"embedder.trainable={trainable}", f"schedule.epochs={epochs}", *never])


def steps_of_loop(training: _Training, steps: int) -> float:
    """Return the seconds that Tophit's loop takes for ``steps`` steps, from the start of an epoch."""
    start, first = time.process_time(), training.position.step
    stop = Stop()

    def count(batch: TrainingBatch, learn: Callable[[TrainingBatch], None] = training._learn_step) -> None:
        learn(batch)
        if training.position.step + 1 - first >= steps:
            raise _Enough

    training.__dict__["_learn_step"] = count
    try:
        while True:
            training._learn_epoch(stop)
    except _Enough:
        pass
    finally:
        del training.__dict__["_learn_step"]
    seconds = time.process_time() - start
    training.position.step, training.position.batch = first, 0
    return seconds


def steps_of_bare_loop(training: _Training, steps: int) -> float:
    """Return the seconds of the same steps written out: the same batches, network, loss and optimizer."""
    method, source, embed = training.method, training.source, training.method.embed  # type: ignore[attr-defined]
    (optimizer,) = method.optimizers
    start, done = time.process_time(), 0
    training.learning.begin_epoch(training.position.epoch)
    epoch = training.position.epoch
    while done < steps:
        for batch in source.batches(epoch, 0):
            optimizer.zero_grad(set_to_none=True)
            loss = method.loss(embed(batch.inputs), batch.labels)
            loss.backward()
            optimizer.step()
            loss.item()
            done += 1
            if done == steps:
                break
        epoch += 1
    return time.process_time() - start


def own_share(training: _Training, steps: int) -> float:
    """Return the share of the loop's time that is neither a method's step nor the reading of a batch.

    It needs no second run to compare with, so it is meaningful even if steps take a second and noise is a few percent.
    """
    inside = 0.0
    step, batches = training.method.step, training.source.batches

    def timed_step(batch: TrainingBatch) -> object:
        nonlocal inside
        start = time.process_time()
        values = step(batch)
        inside += time.process_time() - start
        return values

    def timed_batches(epoch: int, first: int) -> Iterator[TrainingBatch]:
        nonlocal inside
        coming = iter(batches(epoch, first))
        while True:
            start = time.process_time()
            batch = next(coming, None)
            inside += time.process_time() - start
            if batch is None:
                return
            yield batch

    training.method.step, training.source.batches = timed_step, timed_batches  # type: ignore[method-assign]
    total = steps_of_loop(training, steps)
    training.method.step, training.source.batches = step, batches  # type: ignore[method-assign]
    return 1 - inside / total


def overhead(trainable: str, steps: int, turns: int, folder: Path) -> tuple[float, float, float]:
    """Return the bare loop's milliseconds per step, the share by which Tophit's takes longer, and its own share."""
    training = _Training(Run(folder / trainable), recipe_for(trainable, 100_000), View())
    for warm in (steps_of_loop, steps_of_bare_loop):
        warm(training, max(2, steps // 10))
    ratios, bare = [], []
    for turn in range(turns):  # they alternate in going first, so that a drifting clock favours neither
        order = [steps_of_loop, steps_of_bare_loop][:: 1 if turn % 2 else -1]
        seconds = {each: each(training, steps) for each in order}
        ratios.append(seconds[steps_of_loop] / seconds[steps_of_bare_loop])
        bare.append(seconds[steps_of_bare_loop] / steps)
    return 1000 * statistics.median(bare), statistics.median(ratios) - 1, own_share(training, steps)


def step_of_batch(size: int, chunk: int | None) -> float:
    """Take one step of EfficientNet-Lite0 with PNP at 64 pixels; return the peak memory in MB beyond the inputs."""
    embedder = build_embedder("efficientnet-lite0", "random", dim=128, size=64).eval()
    images, labels = torch.randn(size, 3, 64, 64), torch.arange(size) // 4
    optimizer = torch.optim.AdamW(embedder.parameters(), lr=1e-4)
    stepper = Stepper(embedder.parameters(), 128, chunk)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    PlainMethod(embedder, PNPLoss(), optimizer, stepper=stepper).step(TrainingBatch(images, labels, labels))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def print_memory() -> None:
    """Print the memory of each batch, measured in its own process, since a peak never falls."""
    print("\n| batch | chunk | MB beyond the images |\n| --- | --- | --- |", flush=True)
    for size, chunk in ((64, 0), (512, 0), (4096, 64)):
        command = [sys.executable, "-m", "benchmarks.training_overhead", "--step", str(size), str(chunk)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"| {size:,} | {chunk or 'whole'} | {float(done.stdout):,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", nargs=2, type=int, metavar=("SIZE", "CHUNK"), help="measure one step's memory only")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", choices=["head", "all", "memory"], help="print only this part of the tables")
    arguments = parser.parse_args()
    if arguments.step:
        print(step_of_batch(arguments.step[0], arguments.step[1] or None))
        return
    with tempfile.TemporaryDirectory() as name:
        print(
            "| what learns | bare loop, ms per step | Tophit's loop | own share |\n| --- | --- | --- | --- |",
            flush=True,
        )
        for trainable, steps, turns in (("head", 300, arguments.turns), ("all", 4, max(3, arguments.turns // 3))):
            if arguments.only not in (None, trainable):
                continue
            milliseconds, share, own = overhead(trainable, steps, turns, Path(name))
            print(f"| {trainable} | {milliseconds:.2f} | {100 * share:+.1f}% | {100 * own:.2f}% |", flush=True)
    if arguments.only in (None, "memory"):
        print_memory()


if __name__ == "__main__":
    main()
