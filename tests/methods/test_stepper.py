"""Chunks and two processes give the losses and weights of one process with the whole batch: every loss and method."""

import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.reference.two_processes import results_of_two_processes
from torch import nn

from tophit import losses
from tophit.batches import RepresentativeBatchSampler
from tophit.losses.distributed import GatheredLoss
from tophit.methods import (
    BatchMemory,
    GenerationMethod,
    GenerationSettings,
    PlainMethod,
    ProjectionMethod,
    Stepper,
    TrainingBatch,
)
from tophit.mining import mine

CLASSES, DIM = 6, 4
LABELS = torch.arange(24) % CLASSES
INPUTS = torch.randn(24, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
# Unequal classes, odd lengths, and a batch of one image, of which one of two processes gets none.
BATCHES = [[0, 6, 12, 1, 7, 13, 2, 8, 3, 9, 4], [5, 11, 17, 0, 18, 1, 19, 2], [3], [3, 9, 15, 21, 4, 10, 16, 22, 5]]
LOSSES = {
    "topk-precision": lambda: losses.TopKPrecisionLoss(k=2),
    "pnp": lambda: losses.PNPLoss(temperature=0.1),
    "smooth-ap": lambda: losses.SmoothAPLoss(temperature=0.1),
    "contrastive": losses.ContrastiveLoss,
    "triplet": losses.TripletLoss,
    "margin": losses.MarginLoss,
    "lifted-structure": losses.LiftedStructureLoss,
    "n-pair": losses.NPairLoss,
    "angular": losses.AngularLoss,
    "proxy-anchor": lambda: losses.ProxyAnchorLoss(CLASSES, DIM),
    "multi-proxy-anchor": lambda: losses.MultiProxyAnchorLoss(CLASSES, DIM, 3),
    "multi-proxy-anchor data": lambda: losses.MultiProxyAnchorLoss(CLASSES, DIM, 3, "data"),
    "multi-proxy-anchor all-pairs": lambda: losses.MultiProxyAnchorLoss(CLASSES, DIM, 3, "all-pairs"),
    "soft-triple": lambda: losses.SoftTripleLoss(CLASSES, DIM, 3),
    "proxy-nca": lambda: losses.ProxyNCALoss(CLASSES, DIM),
}
MINED = {f"margin {name}": name for name in ("semi-hard", "distance-weighted", "soft-hard")}
MEMORY = ("contrastive with memory", "pnp with memory")
PROJECTIONS = ("triplet by projection", "proxy-anchor by projection")
GENERATION = "triplet by generation"
CASES = [*LOSSES, *MINED, *MEMORY, *PROJECTIONS, GENERATION]


def run(case: str, make_engine) -> dict[str, torch.Tensor]:
    """Learn some steps and return the losses and all weights."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, DIM)).double()
    loss = LOSSES[case.split(" by")[0].split(" with")[0] if case not in MINED else "margin"]().double()
    optimizer = torch.optim.AdamW([*net.parameters(), *loss.parameters()], lr=0.02)
    stepper = make_engine(net)
    if case in PROJECTIONS:
        sampler = RepresentativeBatchSampler(LABELS.tolist(), 4, 3, steps=2, hncm=True)
        method = ProjectionMethod(net, loss, optimizer, sampler, proximal=0.5, stepper=stepper)
        batches = (sampler.next_batch() for _ in range(5))
    elif case == GENERATION:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
        settings = GenerationSettings(pretrain_epochs=0, generator_width=8, discriminator_width=8)
        method = GenerationMethod(net, loss, optimizer, CLASSES, DIM, settings=settings, stepper=stepper)
        batches = iter(BATCHES)
    else:
        miner = partial(mine, strategy=MINED[case]) if case in MINED else None
        memory = BatchMemory(12, start=1) if case in MEMORY else None
        method = PlainMethod(net, loss, optimizer, miner, memory, stepper)
        batches = iter(BATCHES)
    found = []
    for rows in batches:
        own = torch.tensor(stepper.part_of(rows), dtype=torch.int64)
        every = torch.tensor(rows)
        batch = TrainingBatch(INPUTS[own], LABELS[every], every, stepper.part_sizes(len(rows)))
        found.append(method.step(batch)["loss"])
    learned = [p for optimizer in method.optimizers for group in optimizer.param_groups for p in group["params"]]
    weights = torch.cat([p.detach().flatten() for p in learned])
    return {"losses": torch.tensor(found, dtype=torch.float64), "weights": weights}


def whole(net: nn.Module) -> Stepper:
    return Stepper()


def chunked(net: nn.Module) -> Stepper:
    return Stepper(net.parameters(), DIM, chunk=3)


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("case", CASES)
def test_chunks_give_the_gradients_of_the_whole_batch(case: str) -> None:
    expected = run(case, whole)
    assert expected["losses"][0] > 0
    assert_equal(run(case, chunked), expected)


def test_two_processes_give_the_losses_and_weights_of_one(tmp_path: Path) -> None:
    """All cases in one pair of processes, whole and in chunks: starting them is what takes time."""
    ranks = results_of_two_processes(__file__, tmp_path)
    for case in CASES:
        expected = run(case, whole)
        for way in ("whole", "chunked"):
            for rank in ranks:
                assert_equal(rank[case, way], expected)
            assert torch.equal(ranks[0][case, way]["weights"], ranks[1][case, way]["weights"])
    for rank in ranks:
        assert rank["stop"] == [False, True]
        assert rank["common random numbers"]


def worker(folder: str, rank: int) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    results: dict = {}
    for case in CASES:
        for way, chunk in (("whole", None), ("chunked", 2)):
            make = lambda net, chunk=chunk: Stepper(net.parameters(), DIM, chunk, rank=rank, world=2)  # noqa: E731
            results[case, way] = run(case, make)
    results |= {"stop": stop_asked_on_one(rank), "common random numbers": draws_after_dropout(rank)}
    torch.save(results, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def stop_asked_on_one(rank: int) -> list[bool]:
    """Return what a process knows of a stop that the second one asks for, before and after a step."""
    net = nn.Linear(5, DIM).double()
    stepper = Stepper(net.parameters(), DIM, rank=rank, world=2)
    method = PlainMethod(net, losses.PNPLoss(), torch.optim.SGD(net.parameters(), lr=0.1), stepper=stepper)
    stepper.stop_asked = rank == 1
    known = [stepper.stop]
    method.step(TrainingBatch(INPUTS[rank * 4 : rank * 4 + 4], LABELS[:8], torch.arange(8), [4, 4]))
    return [*known, stepper.stop]


def draws_after_dropout(rank: int) -> bool:
    """Say whether both processes draw the same after embeddings that drew differently much, and different dropout."""
    torch.manual_seed(5)
    stepper = Stepper((), 3, rank=rank, world=2)
    batch = TrainingBatch(torch.ones(2 + rank, 3), torch.zeros(5), torch.arange(5), [2, 3])
    embedded = stepper.embed(nn.Dropout(), batch)
    numbers = stepper.gather_objects(torch.rand(3).tolist())
    return numbers[0] == numbers[1] and not torch.equal(embedded[:2], embedded[2:4])


class Noisy(nn.Module):
    """Draws random numbers as it embeds, and notes how often."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout, self.lengths = nn.Linear(5, DIM), nn.Dropout(), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.lengths.append(len(x))
        return self.dropout(self.linear(x))


def test_random_numbers_of_the_embedder_are_replayed() -> None:
    torch.manual_seed(0)
    net, x, loss = Noisy(), INPUTS[:11].float(), losses.PNPLoss(temperature=0.1)
    stepper = Stepper(net.parameters(), DIM, chunk=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0)
    torch.manual_seed(3)
    value = loss(stepper.embed(net, TrainingBatch(x, LABELS[:11], torch.arange(11))), LABELS[:11])
    after = torch.get_rng_state()
    stepper.backward(value, optimizer)
    assert torch.equal(torch.get_rng_state(), after)
    assert net.lengths == [4, 4, 3, 4, 4, 3]  # never more than a chunk
    found = net.linear.weight.grad.clone()
    net.zero_grad()
    torch.manual_seed(3)
    loss(torch.cat([net(part) for part in x.split(4)]), LABELS[:11]).backward()
    torch.testing.assert_close(found, net.linear.weight.grad)


def test_gradients_are_clipped_to_their_norm() -> None:
    net = nn.Linear(5, DIM)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    before = torch.cat([p.detach().flatten().clone() for p in net.parameters()])
    method = PlainMethod(net, losses.MarginLoss(), optimizer, stepper=Stepper(clip=0.01))
    method.step(TrainingBatch(INPUTS[:12].float(), LABELS[:12], torch.arange(12)))
    moved = torch.cat([p.detach().flatten() for p in net.parameters()]) - before
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-3)


def test_float16_scales_the_loss_skips_overflow_and_leaves_true_gradients() -> None:
    """True gradients as soon as ``backward`` returns, because a method may add to them."""
    torch.manual_seed(0)
    net = nn.Linear(5, DIM)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    stepper = Stepper(scaler=scaler, autocast=partial(torch.autocast, "cpu", torch.float16))
    x = INPUTS[:12].float()
    value = losses.ContrastiveLoss()(stepper.embed(net, TrainingBatch(x, LABELS[:12], torch.arange(12))), LABELS[:12])
    assert value.dtype == torch.float32
    stepper.backward(value, optimizer)
    found = net.weight.grad.clone()
    net.zero_grad()
    losses.ContrastiveLoss()(net(x), LABELS[:12]).backward()
    torch.testing.assert_close(found, net.weight.grad, rtol=0.05, atol=2e-3)
    stepper.step(optimizer)
    before = net.weight.detach().clone()
    optimizer.zero_grad()
    stepper.backward(net(x).sum() * float("inf"), optimizer)
    stepper.step(optimizer)
    assert torch.equal(net.weight, before)
    assert scaler.get_scale() == 2.0**13
    other = Stepper(scaler=torch.amp.GradScaler("cpu"))
    other.load_state_dict(stepper.state_dict())
    assert other.scaler is not None
    assert other.scaler.get_scale() == 2.0**13


def test_a_memory_compares_with_past_batches_only_after_its_start() -> None:
    memory, loss = BatchMemory(3, start=1, weight=2.0), losses.ContrastiveLoss()
    first, second, third = (torch.randn(2, DIM, generator=torch.Generator().manual_seed(i)) for i in range(3))
    labels = torch.tensor([0, 1])
    assert memory.loss(loss, first, labels) == 0
    expected = 2 * loss(second, labels, ref_emb=first, ref_labels=labels)
    torch.testing.assert_close(memory.loss(loss, second, labels), expected)
    kept = torch.cat([first, second])[-3:]
    expected = 2 * loss(third, labels, ref_emb=kept, ref_labels=torch.tensor([1, 0, 1]))
    torch.testing.assert_close(memory.loss(loss, third, labels), expected)


def test_the_gathered_loss_is_left_for_loops_of_users() -> None:
    assert GatheredLoss(losses.PNPLoss())(INPUTS[:12], LABELS[:12]).ndim == 0


if __name__ == "__main__":
    worker(sys.argv[1], int(sys.argv[2]))
