"""The stepper embeds batches, runs backward and steps optimizers, with many processes, chunks and mixed precision.

Everything after the embedding runs identically on every process, with the same random numbers. So only the embedder's
gradient is split over processes, and summed once after each backward; this is why DistributedDataParallel is not used.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from tophit.losses.distributed import all_gather_rows
from tophit.methods.method import TrainingBatch

Embed = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class _Chunks:
    """A batch embedded without a graph, with what is needed to run it again."""

    embed: Embed
    inputs: tuple[torch.Tensor, ...]
    random: list["_Random"]  # the random state before each chunk
    leaf: torch.Tensor  # (n, d), where the loss's gradient arrives


class Stepper:
    """Embeds a batch, propagates gradients and steps optimizers. ``Stepper()`` is plain PyTorch in one process.

    ``parameters`` and ``dim`` are the embedder's. ``chunk`` is the most images that pass through the embedder at a
    time: first all of them without a graph; then, once the loss's gradient at the embeddings is known, again with one.
    The gradients are those of the whole batch; only the embedder runs twice. Random numbers it draws are replayed.
    ``clip`` bounds the norm of each optimizer's gradients. ``autocast`` makes the context of the embedder's forward
    pass; losses get float32. ``scaler`` keeps small gradients of float16 from vanishing. ``device`` is where inputs go
    before they are embedded, chunk by chunk; without one they stay where they are.

    With ``world`` processes, each embeds its part of a batch (``TrainingBatch.parts``) and gets the embeddings of all.
    Gradients of ``parameters`` are summed over processes; all others are already complete, and are averaged so that
    rounding can't make processes diverge.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter] = (),
        dim: int | None = None,
        chunk: int | None = None,
        clip: float | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        scaler: torch.amp.GradScaler | None = None,
        device: torch.device | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.chunk, self.clip, self.scaler = chunk, clip, scaler
        self.autocast = autocast
        self.device = device
        self.rank, self.world = rank, world
        self.stop_asked = False  # on this process
        self._stop_agreed = False
        self._embedded = 0  # batches, for the random numbers of each process
        self._chunks: _Chunks | None = None
        self.shares(parameters, dim)

    def shares(self, parameters: Iterable[torch.nn.Parameter], dim: int | None) -> None:
        """Set which parameters make the embeddings, and the length of the embeddings."""
        parameters = list(parameters)
        self.dim, self._dtype = dim, parameters[0].dtype if parameters else torch.float32
        self._shared = {id(parameter) for parameter in parameters}

    def embed(self, function: Embed, batch: TrainingBatch) -> torch.Tensor:
        """Return the embeddings (N, d) of the whole batch, in the order of its labels."""
        if self.world == 1:
            return self._embed_own(function, batch.inputs)
        self._embedded += 1
        with _own_random_numbers(self.device or batch.inputs.device, (self._embedded, self.rank)):
            own = self._embed_own(function, batch.inputs)
        assert batch.parts is not None
        return _GatherOwn.apply(own, batch.parts, self.rank)  # type: ignore[return-value]

    def _embed_own(self, function: Embed, inputs: torch.Tensor) -> torch.Tensor:
        self._chunks = None
        if not len(inputs):  # this process has no readable image in the batch
            return torch.zeros(0, self.dim or 0, dtype=self._dtype, device=self.device, requires_grad=True)
        if self.chunk is None or len(inputs) <= self.chunk:
            return self._forward(function, inputs)
        parts, states, embedded = inputs.split(self.chunk), [], []
        with torch.no_grad():
            for part in parts:
                states.append(_Random.now(self.device or inputs.device))
                embedded.append(self._forward(function, part))
        leaf = torch.cat(embedded).requires_grad_()
        self._chunks = _Chunks(function, parts, states, leaf)
        return leaf

    def _forward(self, function: Embed, inputs: torch.Tensor) -> torch.Tensor:
        with self.autocast():
            embeddings = function(inputs if self.device is None else inputs.to(self.device))
        return embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings

    def backward(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Add the gradient of a loss to the optimizer's parameters, and to no others."""
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        chunks = self._chunks
        if chunks is None or not any(id(p) in self._shared for p in parameters):
            scaled.backward(inputs=parameters)
        else:
            scaled.backward(inputs=[*parameters, chunks.leaf])
            self._backward_chunks(chunks, parameters)
            self._chunks = None
        if self.world > 1:
            self._sum_over_processes(parameters)
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def _backward_chunks(self, chunks: _Chunks, parameters: list[torch.Tensor]) -> None:
        """Run each chunk again with a graph, and propagate the gradient at its embeddings."""
        if chunks.leaf.grad is None:
            return
        shared = [p for p in parameters if id(p) in self._shared]
        after = _Random.now(chunks.leaf.device)
        for part, state, gradient in zip(
            chunks.inputs, chunks.random, chunks.leaf.grad.split(len(chunks.inputs[0])), strict=True
        ):
            state.restore()
            self._forward(chunks.embed, part).backward(gradient, inputs=shared)
        after.restore()

    @torch.no_grad()
    def _sum_over_processes(self, parameters: list[torch.Tensor]) -> None:
        """Sum the gradients of the embedder and average the others, all in one message.

        A parameter without a gradient on any process stays without one, as with a single process.
        """
        flat = [
            (p.new_zeros(p.shape) if p.grad is None else p.grad if id(p) in self._shared else p.grad / self.world)
            for p in parameters
        ]
        notes = torch.tensor([p.grad is not None for p in parameters] + [self.stop_asked], dtype=flat[0].dtype)
        message = torch.cat([part.reshape(-1) for part in [*flat, notes.to(flat[0].device)]])
        dist.all_reduce(message)
        *gradients, seen = message.split([*(p.numel() for p in parameters), len(notes)])
        *present, stop = seen.tolist()
        for parameter, gradient, processes in zip(parameters, gradients, present, strict=True):
            if processes:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(gradient.view(parameter.shape))
        self._stop_agreed = stop > 0

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the optimizer take its step; with a scaler, a step whose gradients overflowed is skipped."""
        if self.clip is not None:
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()

    @property
    def stop(self) -> bool:
        """Whether to stop now: requested on any process, and known to all since the last backward."""
        return self.stop_asked if self.world == 1 else self._stop_agreed

    def part_of(self, rows: Sequence[int]) -> list[int]:
        """Return this process's part of a batch's rows; the parts of all processes in order are the batch."""
        if self.world == 1:
            return list(rows)
        return list(rows[len(rows) * self.rank // self.world : len(rows) * (self.rank + 1) // self.world])

    def part_sizes(self, count: int) -> list[int]:
        """Return the number of a batch's rows that each process has."""
        return [count * (r + 1) // self.world - count * r // self.world for r in range(self.world)]

    def gather_objects(self, value: Any) -> list[Any]:
        """Return every process's value, in the order of ranks."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return what must be kept between steps: the count of batches and the scaler's state."""
        return {"embedded": self._embedded, "scaler": None if self.scaler is None else self.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._embedded = state["embedded"]
        if self.scaler is not None and state["scaler"] is not None:
            self.scaler.load_state_dict(state["scaler"])


class _GatherOwn(torch.autograd.Function):
    """Joins the embeddings of all processes. In backward, each has the whole gradient and takes its own rows."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, parts: list[int], rank: int) -> torch.Tensor:
        ctx.start, ctx.length = sum(parts[:rank]), parts[rank]
        return torch.cat(all_gather_rows(own, parts))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
        return grad_outputs[0].narrow(0, ctx.start, ctx.length), None, None


@dataclass
class _Random:
    """The state of the random numbers that an embedder may draw: the CPU's and the device's."""

    where: torch.device
    cpu: torch.Tensor
    device: torch.Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> "_Random":
        own = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(device, torch.get_rng_state(), own)

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.device is not None:
            torch.cuda.set_rng_state(self.device, self.where)


@contextmanager
def _own_random_numbers(device: torch.device, key: tuple[int, int]) -> Iterator[None]:
    """Draw numbers specific to this step and process (for dropout), and leave the common state unchanged."""
    before = _Random.now(device)
    torch.manual_seed(hash((torch.initial_seed(), *key)) % 2**63)  # integers hash the same in every process
    try:
        yield
    finally:
        before.restore()
