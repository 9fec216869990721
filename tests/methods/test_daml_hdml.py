"""DAML and HDML: their equations against a literal reading, who learns from what, resuming, and runs by recipe."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tophit.errors import NonFinite, UsageError
from tophit.losses import NPairLoss, TripletLoss
from tophit.methods import DAMLMethod, HDMLMethod, Stepper, TrainingBatch
from tophit.methods.daml import generator_loss
from tophit.methods.hdml import generator_losses, harder_negatives, hardness
from tophit.recipe import make_recipe
from tophit.training import resume, train

CLASSES, CHANNELS, DIM = 5, 12, 6
KINDS = {"daml": DAMLMethod, "hdml": HDMLMethod}
kinds = pytest.mark.parametrize("kind", KINDS)


class Network(nn.Module):
    """Two linear maps: inputs to features, features to unit vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.top = nn.Linear(10, CHANNELS), nn.Linear(CHANNELS, DIM)

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.trunk(inputs))

    def head(self, y: torch.Tensor) -> torch.Tensor:
        return functional.normalize(self.top(y), dim=-1)


def make(kind: str, seed: int = 0, loss: nn.Module | None = None, **options: Any) -> tuple[Any, Network]:
    torch.manual_seed(seed)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    given = {"classes": CLASSES, "dim": DIM, "channels": CHANNELS, "pretrain_epochs": 0, "generator_width": 16}
    loss = TripletLoss() if loss is None else loss
    return KINDS[kind](network.features, network.head, loss, optimizer, **{**given, **options}), network


def make_batch(seed: int = 0, per_class: int = 3) -> TrainingBatch:
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    centres = torch.randn(CLASSES, 10, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(len(labels), 10, generator=torch.Generator().manual_seed(seed))
    return TrainingBatch(centres[labels] + 0.5 * noise, labels, torch.arange(len(labels)))


# --- the equations


def squared(v: list[float], w: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(v, w, strict=True))


def test_damls_generator_loss_is_the_printed_sum() -> None:
    torch.manual_seed(0)
    made, y = torch.randn(4, 5, dtype=torch.float64), torch.randn(3, 4, 5, dtype=torch.float64)
    made_z, z = torch.randn(4, 3, dtype=torch.float64), torch.randn(3, 4, 3, dtype=torch.float64)
    found = generator_loss(made, y, made_z, z, 0.5, 7.0, 0.3)
    for t in range(4):
        (a, _, n), (az, pz, _) = y[:, t].tolist(), z[:, t].tolist()
        hard, reg = squared(made[t].tolist(), a), squared(made[t].tolist(), n)
        adv = max(0.0, squared(made_z[t].tolist(), az) - squared(pz, az) - 0.3)
        parts = [hard, reg, adv, hard + 0.5 * reg + 7 * adv]
        assert [float(found[name][t]) for name in ("hard", "reg", "adv", "LG")] == pytest.approx(parts)
    assert found["adv"].any()


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0])
def test_hdmls_negatives_lie_between_the_positives_distance_and_their_own(factor: float) -> None:
    torch.manual_seed(1)
    z = functional.normalize(torch.randn(3, 20, 4, dtype=torch.float64), dim=-1)
    found, stayed = harder_negatives(z, factor), 0
    for t in range(20):
        a, p, n, moved = (each[t].tolist() for each in (*z, found))
        to_p, to_n = math.sqrt(squared(a, p)), math.sqrt(squared(a, n))
        if to_n <= to_p:
            assert moved == n
            stayed += 1
            continue
        weight = factor + (1 - factor) * to_p / to_n  # lambda_0, of a + lambda_0 (n - a)
        assert moved == pytest.approx([x + weight * (y - x) for x, y in zip(a, n, strict=True)])
    assert 0 < stayed < 20


def test_a_negative_at_the_anchor_stays_finite() -> None:
    z = torch.ones(3, 1, 2)
    assert torch.equal(harder_negatives(z, 0.0), z[2])


def test_hardness_falls_with_the_loss() -> None:
    assert hardness(1.0, 7.0) == pytest.approx(math.exp(-7))
    assert hardness(1e9, 7.0) == pytest.approx(1)
    assert hardness(0.0, 7.0) == 0


def test_hdmls_generator_loss_is_a_sum_of_distances_and_a_softmax() -> None:
    torch.manual_seed(2)
    y, rebuilt, logits = torch.randn(3, 4, 5), torch.randn(3, 4, 5), torch.randn(3, 4, 6)
    labels = torch.randint(0, 6, (3, 4))
    found = generator_losses(y, rebuilt, logits, labels, 10.0)
    recon = sum(squared(y[i, t].tolist(), rebuilt[i, t].tolist()) for i in range(3) for t in range(4))
    losses = [
        math.log(sum(math.exp(v) for v in logits[i, t].tolist())) - float(logits[i, t, labels[i, t]])
        for i in range(3)
        for t in range(4)
    ]
    assert float(found["recon"]) == pytest.approx(recon, rel=1e-5)
    assert float(found["soft"]) == pytest.approx(sum(losses) / 12, rel=1e-5)
    assert float(found["LG"]) == pytest.approx(recon + 10 * sum(losses) / 12, rel=1e-5)


# --- a step


def parts_of(method: Any, network: Network) -> dict[str, list[nn.Parameter]]:
    parts = {name: list(each.parameters()) for name, each in method.networks.items()}
    return {**parts, "trunk": list(network.trunk.parameters()), "top": list(network.top.parameters())}


def moving(method: Any, network: Network) -> set[str]:
    return {
        name
        for name, parameters in parts_of(method, network).items()
        if any(p.grad is not None and bool(p.grad.any()) for p in parameters)
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("daml", [("g", {"g"}), ("f", {"trunk", "top"})]),
        ("hdml", [("c", {"c"}), ("g", {"g"}), ("f", {"trunk", "top"})]),
    ],
)
def test_each_loss_moves_only_its_own_network_in_order(kind: str, expected: list[tuple[str, set[str]]]) -> None:
    method, network = make(kind)
    seen: list[tuple[str, set[str]]] = []
    for part, optimizer in method._optimizers.items():
        optimizer.register_step_pre_hook(lambda *_, part=part: seen.append((part, moving(method, network))))
    method.step(make_batch())
    assert seen == expected


@kinds
def test_before_generation_the_embedder_learns_as_from_random_triplets(kind: str) -> None:
    method, network = make(kind, pretrain_epochs=1)
    torch.manual_seed(7)
    values = method.step(make_batch())
    other, plain = make(kind, pretrain_epochs=1)
    torch.manual_seed(7)
    from tophit.methods.thsg.components import random_triplets

    batch = make_batch()
    triplets = random_triplets(batch.labels)
    loss = TripletLoss()(plain.head(plain.features(batch.inputs)), batch.labels, triplets=tuple(triplets))
    assert values["loss"] == pytest.approx(loss.item())
    other._optimizers.learn("f", loss)
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@kinds
def test_the_generator_gets_better_at_its_own_loss(kind: str) -> None:
    """Its loss falls while the embedder stands still."""
    method, _ = make(kind, generator_rate=10.0)
    method._optimizers["f"].param_groups[0]["lr"] = 0.0
    first = method.step(make_batch())["LG"]
    for _ in range(60):
        last = method.step(make_batch())["LG"]
    assert last < 0.7 * first


def test_damls_negatives_come_nearer_to_the_anchor_than_real_ones() -> None:
    method, network = make("daml", generator_rate=10.0)
    method._optimizers["f"].param_groups[0]["lr"] = 0.0
    for _ in range(200):
        values = method.step(make_batch())
    y = network.features(make_batch().inputs).detach()
    assert values["hard"] < float(torch.cdist(y, y).square().mean())


def test_hdml_gives_weight_to_made_triplets_as_its_generator_learns() -> None:
    method, _ = make("hdml", beta=100.0, soft_weight=1.0)
    first = method.step(make_batch())
    for _ in range(60):
        last = method.step(make_batch())
    assert first["w_org"] + first["w_syn"] == pytest.approx(1)
    assert first["w_org"] == pytest.approx(math.exp(-100 / first["LG"]), rel=1e-4)
    assert last["w_syn"] > first["w_syn"]
    assert last["loss"] == pytest.approx(last["w_org"] * last["org"] + last["w_syn"] * last["syn"], rel=1e-4)


def test_hdmls_hardness_follows_the_last_epochs_loss() -> None:
    method, _ = make("hdml", alpha=0.1)
    method.begin_epoch(0)
    losses = [method.step(make_batch(seed))["org"] for seed in range(3)]
    method.begin_epoch(1)
    expected = math.exp(-0.1 / (sum(losses) / 3))
    assert [method.step(make_batch(seed))["hardness"] for seed in (3, 4)] == pytest.approx([expected] * 2)


@kinds
def test_it_takes_other_losses_and_batches_without_triplets(kind: str) -> None:
    method, _ = make(kind, loss=NPairLoss())
    assert math.isfinite(method.step(make_batch())["loss"])
    alone = TrainingBatch(torch.randn(4, 10), torch.arange(4), torch.arange(4))
    assert method.step(alone) == {"loss": 0.0, "triplets": 0.0}


@kinds
def test_a_loss_that_is_not_finite_is_named(kind: str) -> None:
    method, _ = make(kind)
    batch = make_batch()
    batch.inputs[0] = math.nan
    with pytest.raises(NonFinite, match=rf"In the {kind} method the loss of the (generator|classifier) became"):
        method.step(batch)


@kinds
def test_several_processes_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"{kind} runs in one process"):
        make(kind, stepper=Stepper(world=2))


@kinds
def test_a_saved_method_continues_exactly(kind: str) -> None:
    whole, network = make(kind)
    for seed in range(3):
        whole.step(make_batch(seed))
    state = copy.deepcopy(whole.state_dict())
    weights, random = {k: v.clone() for k, v in network.state_dict().items()}, torch.get_rng_state()
    expected = [whole.step(make_batch(seed)) for seed in (3, 4)]
    again, other = make(kind, seed=5)
    other.load_state_dict(weights)
    again.load_state_dict(state)
    torch.set_rng_state(random)
    assert [again.step(make_batch(seed)) for seed in (3, 4)] == expected


# --- by recipe


def recipe_with(pictures: Path, kind: str, trainable: str, **sections: Any):
    fields = {
        "data": {"manifest": str(pictures), "validation_share": 0.25},
        "embedder": {"backbone": "small", "weights": "random", "dim": 8, "size": 32, "trainable": trainable},
        "loss": "triplet",
        "method": {"name": kind, "generator_width": 16},
        "batches": {"classes": 3, "per_class": 3},
        "schedule": {"epochs": 3, "warmup_epochs": 0},
    }
    return make_recipe({**fields, **sections})


@pytest.mark.parametrize(("kind", "trainable"), [("daml", "all"), ("hdml", "head")])
def test_a_run_by_recipe_logs_and_resumes(kind: str, trainable: str, pictures: Path, tmp_path: Path) -> None:
    recipe = recipe_with(pictures, kind, trainable)
    result = train(recipe, tmp_path / "whole")
    assert result["test"]["recall@1"] >= 0
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert all(line["LG"] > 0 and line["triplets"] > 0 for line in steps)
    assert resume(tmp_path / "whole")["test"] == result["test"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"loss": "pnp"}, "needs a loss that takes triplets"),
        ({"miner": "semi-hard"}, "chooses its own exemplars"),
        ({"method": {"name": "daml", "adversry": 1}}, r"adversry: unknown key\. Did you mean 'adversary'"),
    ],
)
def test_mistakes_are_named(sections: dict[str, Any], message: str, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        train(recipe_with(pictures, "daml", "head", **sections), tmp_path / "run")
