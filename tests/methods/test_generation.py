"""The generation method: who learns in which step, in which order, and what it makes of synthetic embeddings."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tophit.errors import NonFinite, UsageError
from tophit.losses import NPairLoss, TripletLoss
from tophit.methods import GenerationMethod, TrainingBatch
from tophit.methods.generation import _PARTS
from tophit.methods.thsg import GenerationSettings, balance_weights, reverse_margin
from tophit.mining import mine

CLASSES, DIM = 6, 8
PARTS = ["d1", "g1", "d2", "g2", "f"]


class Embedder(nn.Module):
    """A linear map to unit vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, DIM)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.normalize(self.head(inputs), dim=1)


def make(
    seed: int = 0, loss: nn.Module | None = None, hard_loss: Any = None, miner: Any = None, **settings: Any
) -> GenerationMethod:
    torch.manual_seed(seed)
    embedder = Embedder()
    optimizer = torch.optim.AdamW(embedder.parameters(), lr=1e-2)
    settings = {"pretrain_epochs": 0, **settings}
    return GenerationMethod(
        embedder,
        TripletLoss() if loss is None else loss,
        optimizer,
        CLASSES,
        DIM,
        miner,
        hard_loss,
        GenerationSettings(**settings),
    )


def make_batch(seed: int = 0, per_class: int = 3) -> TrainingBatch:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    centres = torch.randn(CLASSES, 10, generator=torch.Generator().manual_seed(99))
    inputs = centres[labels] + 0.5 * torch.randn(len(labels), 10, generator=generator)
    return TrainingBatch(inputs, labels, torch.arange(len(labels)))


def groups(method: GenerationMethod) -> dict[str, list[nn.Parameter]]:
    """Return the parameters of each part; the classifier apart from the embedder, though they share an optimizer."""
    networks = method.networks
    parts = {name: list(getattr(networks, name).parameters()) for name in ("d1", "g1", "d2", "g2", "classifier")}
    return {**parts, "embedder": list(method.embed.parameters())}  # type: ignore[attr-defined]


def spy_on(method: GenerationMethod, see) -> None:
    """Call ``see(part)`` just before each optimizer's step."""
    for part, optimizer in method._optimizers.items():
        optimizer.register_step_pre_hook(lambda *_, part=part: see(part))


def moving(method: GenerationMethod) -> set[str]:
    """Return the groups in which some parameter has a gradient that is not 0."""
    found = set()
    for name, parameters in groups(method).items():
        if any(p.grad is not None and bool(p.grad.any()) for p in parameters):
            found.add(name)
    return found


def test_updates_come_in_the_order_of_the_text():
    method, order = make(), []
    spy_on(method, order.append)
    method.step(make_batch())
    method.step(make_batch(1))
    assert order == PARTS * 2


def test_each_step_moves_only_its_own_networks():
    """ERRATA 004.9: D steps leave F and G alone, G steps F, C_F and D, the F step G and D."""
    method, seen = make(), {}
    spy_on(method, lambda part: seen.update({part: moving(method)}))
    method.step(make_batch())  # the first step gives no weight to the generated triplets
    method.step(make_batch(1))
    assert seen == {"d1": {"d1"}, "g1": {"g1"}, "d2": {"d2"}, "g2": {"g2"}, "f": {"embedder", "classifier"}}


def test_between_two_steps_nothing_else_changes():
    method = make()
    method.step(make_batch())
    changed = {}
    before = {name: [p.detach().clone() for p in ps] for name, ps in groups(method).items()}

    def see(part):
        changed[part] = {
            name
            for name, parameters in groups(method).items()
            if any(not torch.equal(p, old) for p, old in zip(parameters, before[name], strict=True))
        }

    spy_on(method, see)
    method.step(make_batch(1))
    assert changed == {
        "d1": set(),
        "g1": {"d1"},
        "d2": {"d1", "g1"},
        "g2": {"d1", "g1", "d2"},
        "f": {"d1", "g1", "d2", "g2"},
    }


class NoLoss(nn.Module):
    """A loss of 0 that depends on nothing."""

    def forward(self, embeddings, labels, indices_tuple=None):
        return embeddings.sum() * 0


@pytest.mark.parametrize("hard_loss", [TripletLoss(margin=4.0), NPairLoss()])
def test_the_hard_term_alone_teaches_the_embedder_through_the_frozen_generators(hard_loss):
    method, seen = make(loss=NoLoss(), hard_loss=hard_loss, category=False), {}
    method.step(make_batch())
    method.loss_g = 0.01  # nearly all weight to the generated triplets
    spy_on(method, lambda part: seen.update({part: moving(method)}))
    values = method.step(make_batch(1))
    assert values["w_hard"] > 0.99
    assert seen["f"] == {"embedder", "classifier"}


def test_without_hard_and_category_terms_the_embedder_learns_nothing_from_generation():
    method, seen = make(loss=NoLoss(), category=False), {}
    spy_on(method, lambda part: seen.update({part: moving(method)}))
    method.step(make_batch())  # no generator's loss yet: weight 0 for the hard term
    assert seen["f"] == {"classifier"}


def test_weights_and_margin_come_from_the_loss_of_the_step_before():
    method = make()
    first = method.step(make_batch())
    assert (first["w_org"], first["w_hard"], first["tau_r"]) == (1.0, 0.0, 0.0)
    second = method.step(make_batch(1))
    w_org, w_hard = balance_weights(first["LG2"])
    assert second["w_org"] == pytest.approx(float(w_org), rel=1e-12)
    assert second["w_hard"] == pytest.approx(float(w_hard), rel=1e-12)
    assert second["tau_r"] == pytest.approx(float(reverse_margin(first["LG2"])), rel=1e-12)
    expected = second["w_org"] * second["org"] + 0.5 * second["class_F"] + second["w_hard"] * second["hard"]
    assert second["loss"] == pytest.approx(expected, rel=1e-5)


def test_the_second_stage_sees_samples_of_the_updated_first_generator():
    """SPEC test 6: X' is extracted again after G1's update."""
    method, seen = make(), []
    method.networks.g1.register_forward_hook(lambda _, __, output: seen.append(output.detach()))
    method.networks.g2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    method.step(make_batch())
    stage1, again, into_g2, into_g2_again = seen
    assert not torch.equal(stage1, again)
    torch.testing.assert_close(into_g2[:2], again, rtol=0, atol=0)
    torch.testing.assert_close(into_g2_again[:2], again, rtol=0, atol=0)


def test_the_threshold_is_the_previous_epochs_mean():
    method = make(pretrain_epochs=1)
    epochs = []
    for epoch in range(3):
        method.begin_epoch(epoch)
        method.begin_epoch(epoch)  # a resumed run says it again
        steps = [method.step(make_batch(number)) for number in range(2)]
        epochs.append((steps, method.threshold.total / method.threshold.count))
    assert "dt" not in epochs[0][0][0]  # pre-training: nothing is generated
    assert "LG1" not in epochs[0][0][0]
    for (_, mean), (steps, _) in pairwise(epochs):
        assert [step["dt"] for step in steps] == [mean, mean]


def test_pretraining_moves_embedder_and_classifier_only():
    method, seen = make(pretrain_epochs=2), []
    spy_on(method, lambda part: seen.append((part, moving(method))))
    values = method.step(make_batch())
    assert seen == [("f", {"embedder", "classifier"})]
    assert values["loss"] == pytest.approx(values["org"] + 0.5 * values["class_F"], rel=1e-5)


def test_a_miner_changes_the_original_term_only():
    mined, plain = (make(miner=miner) for miner in (lambda x, y: mine(x, y, "hard"), None))
    torch.manual_seed(5)
    first = mined.step(make_batch())
    torch.manual_seed(5)
    second = plain.step(make_batch())
    assert first["org"] != second["org"]
    for name in ("LD1", "LG1", "LD2", "LG2", "hard", "class_F", "dt", "kept2"):
        assert first[name] == second[name], name


@pytest.mark.parametrize(
    ("settings", "order", "absent"),
    [
        ({"second_stage": False}, ["d1", "g1", "f"], {"LG2", "LD2", "tau_r", "kept2"}),
        ({"second_stage": False, "category": False}, ["d1", "g1", "f"], {"LG2", "LD2", "tau_r", "kept2"}),
        ({"hard": False, "category": False}, ["f"], {"LG1", "LG2", "hard", "w_hard", "class_F"}),
    ],
)
def test_ablations_of_figure_9(settings, order, absent):
    method, seen, moved = make(loss=TripletLoss(margin=4.0), **settings), [], {}

    def see(part):
        seen.append(part)
        moved[part] = moving(method)

    spy_on(method, see)
    method.step(make_batch())
    values = method.step(make_batch(1))
    assert seen == order * 2
    assert not absent & set(values)
    assert moved["f"] == ({"embedder", "classifier"} if len(order) > 1 else {"embedder"})
    if "LG1" in values:
        assert method.loss_g == pytest.approx(values["LG1"])  # it stands for the generator's loss
    else:
        assert values["loss"] == values["org"]


def test_without_category_loss_the_embedder_gets_the_triplet_terms_alone():
    method = make(category=False)
    batch = make_batch()
    torch.manual_seed(3)
    grads = []
    method._optimizers["f"].register_step_pre_hook(lambda *_: grads.append(method.embed.head.weight.grad.clone()))
    method.step(batch)  # w_org is 1: only the original term
    twin = make(category=False)
    torch.manual_seed(3)
    from tophit.methods.thsg.triplets import random_triplets

    triplets = random_triplets(batch.labels)
    loss = TripletLoss()(twin.embed(batch.inputs), batch.labels, triplets=tuple(triplets))
    (expected,) = torch.autograd.grad(loss, twin.embed.head.weight)  # type: ignore[attr-defined]
    torch.testing.assert_close(grads[0], expected)


def test_the_buffer_adds_negatives_of_other_classes_for_some_steps():
    method = make(buffer_steps=2)
    kept = []
    for number in range(4):
        values = method.step(make_batch(number))
        assert math.isfinite(float(values["hard"]))
        kept.append(len(method.buffer.state_dict()["samples"]))
    assert kept == [1, 2, 2, 2]
    x, y = torch.randn(5, DIM), torch.tensor([0, 1, 2, 3, 4])
    method.buffer._kept.clear()
    method.buffer.add(torch.cat([x, -x]), torch.cat([y, torch.zeros(5, dtype=torch.long)]))
    samples, labels, rows = method.buffer.nearest_others(x, y)
    assert rows.tolist() == y.tolist()
    assert (labels != y).all()
    stored = list(zip([*x, *-x], [0, 1, 2, 3, 4, 0, 0, 0, 0, 0], strict=True))
    for row, sample in enumerate(samples):
        nearest = min((x[row] - other).norm() for other, label in stored if label != row)
        torch.testing.assert_close((x[row] - sample).norm(), nearest)


def test_n_pair_on_generated_triplets_has_all_generated_negatives():
    method = make(hard_loss=NPairLoss())
    method.step(make_batch())
    x2 = functional.normalize(torch.randn(3, 4, DIM), dim=-1)
    y = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 0]])
    expected = []
    for i in range(4):
        a, p = x2[0, i], x2[1, i]
        others = [x2[2, j] for j in range(4) if y[2, j] != y[0, i]]
        expected.append(torch.log(1 + sum(torch.exp(a @ n - a @ p) for n in others)))
    torch.testing.assert_close(method._hard(x2, y), torch.stack(expected).mean())


def test_under_bf16_autocast_the_losses_stay_float32():
    method, dtypes = make(), []
    for network in method.networks.children():
        network.register_forward_hook(lambda _, __, output: dtypes.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert method.embed(make_batch().inputs).dtype == torch.bfloat16
        first = method.step(make_batch())
        second = method.step(make_batch(1))
    assert len(dtypes) >= 20
    assert set(dtypes) == {torch.float32}
    assert all(p.dtype == torch.float32 for ps in groups(method).values() for p in ps)
    exact = make()
    torch.testing.assert_close(exact.step(make_batch())["LD2"], first["LD2"], rtol=0.02, atol=0)
    assert all(math.isfinite(float(v)) for v in second.values())


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_not_finite_is_named_and_takes_no_step(part):
    method = make()
    method.step(make_batch())
    stepped = []
    spy_on(method, stepped.append)
    network = {"f": "classifier"}.get(part, part)
    if part == "f":
        method.settings = GenerationSettings(pretrain_epochs=0, phi=math.nan)
    else:
        with torch.no_grad():
            next(getattr(method.networks, network).parameters()).fill_(math.nan)
    named = {"g1": "d1", "g2": "d2"}.get(part, part)  # a generator's samples reach its discriminator first
    with pytest.raises(NonFinite) as error:
        method.step(make_batch(1))
    assert f"In the generation method {_PARTS[named]} became infinite or not a number." == str(error.value)
    assert named not in stepped


def test_a_gradient_that_is_not_finite_is_named():
    class BadGradient(nn.Module):
        def forward(self, embeddings, labels, indices_tuple=None):
            return (embeddings - embeddings.detach()).abs().sum().sqrt()  # 0, with an infinite slope

    method = make(loss=BadGradient())
    before = method.embed.head.weight.detach().clone()
    with pytest.raises(NonFinite, match=r"the gradient of the loss of the embedder \(Eq\. 5\) became"):
        method.step(make_batch())
    assert torch.equal(before, method.embed.head.weight)


def test_collapse_is_reported_once():
    method = make(generator_lr=0.0)
    with torch.no_grad():  # a generator that makes nearly the same vector of anything
        for layer in (method.networks.g2.layers[0], method.networks.g2.layers[2]):
            layer.weight.mul_(1e-3)
    results = [method.step(make_batch(number)) for number in range(50)]
    warnings = [values["warning"] for values in results if "warning" in values]
    assert len(warnings) == 1
    assert "Generation has collapsed" in warnings[0]
    assert "100% of the classes" in warnings[0]
    assert all(values["collapsed"] == 1 and values["diversity"] < 0.01 for values in results)
    healthy = [make().step(make_batch(number)) for number in range(3)]
    assert all(values["collapsed"] < 0.5 for values in healthy)


def test_batches_without_triplets_teach_nothing():
    method = make()
    before = method.state_dict()["networks"]["g1.layers.0.weight"].clone()
    batch = TrainingBatch(torch.randn(4, 10), torch.tensor([0, 1, 2, 3]), torch.arange(4))
    assert method.step(batch) == {"loss": 0.0, "triplets": 0.0}
    assert torch.equal(before, method.networks.g1.layers[0].weight)


def test_settings_leave_weight_for_the_reconstruction():
    with pytest.raises(UsageError, match=r"2 eta \+ mu must be at most 1"):
        GenerationSettings(eta=0.4, mu=0.3)


@pytest.mark.parametrize("settings", [{}, {"buffer_steps": 3, "pretrain_epochs": 1}, {"second_stage": False}])
def test_state_restores_every_network_optimizer_weight_and_threshold(settings):
    whole, parted = make(**settings), make(**settings)
    torch.manual_seed(1)
    expected = run(whole, range(6))
    torch.manual_seed(1)
    got = run(parted, range(3))
    random_state = torch.get_rng_state()  # the loop saves it
    fresh = make(seed=9, **settings)
    torch.set_rng_state(random_state)
    fresh.load_state_dict(parted.state_dict())
    fresh.embed.load_state_dict(parted.embed.state_dict())  # type: ignore[attr-defined]
    got += run(fresh, range(3, 6))
    assert got == expected
    torch.testing.assert_close(fresh.state_dict(), whole.state_dict(), rtol=0, atol=0)


def run(method, numbers):
    """Three steps an epoch, the state taken in the middle of the second one."""
    results = []
    for number in numbers:
        method.begin_epoch(number // 2)
        results.append(method.step(make_batch(number)))
    return results


def test_generated_samples_are_harder_and_keep_their_labels():
    """SPEC test 7: 10 classes in 16 dimensions, the embedder frozen, 400 steps."""
    torch.manual_seed(0)
    dim, classes, steps = 16, 10, 400
    centres = functional.normalize(torch.randn(classes, dim), dim=1)

    def embed(inputs):
        return functional.normalize(inputs, dim=1)

    unused = nn.Parameter(torch.zeros(1))
    method = GenerationMethod(
        embed,
        TripletLoss(),
        torch.optim.AdamW([unused], lr=0.0),
        classes,
        dim,
        settings=GenerationSettings(pretrain_epochs=1, classifier_lr=1e-2),
    )
    seen = {}
    method.networks.g1.register_forward_hook(lambda _, __, output: seen.update(x1=output.detach()))
    method.networks.g2.register_forward_hook(lambda _, inputs, output: seen.update(x2=output.detach()))
    labels = torch.arange(classes).repeat_interleave(8)
    results = []
    for number in range(100 + steps):  # the classifier learns first, so that its judgement means something
        method.begin_epoch(number // 100)
        x = centres[labels] + 0.18 * torch.randn(len(labels), dim)
        results.append(method.step(TrainingBatch(x, labels, labels)))
    results = results[100:]
    end = results[-50:]

    def mean(name):
        return sum(values[name] for values in end) / len(end)

    assert mean("kept1") > 0.95
    assert mean("kept2") > 0.95
    assert mean("LG2") < 0.5 * results[0]["LG2"]
    assert results[0]["tau_r"] == 0
    assert mean("tau_r") > 0.02
    ah, ph, nh = seen["x2"]
    positive, negative = (ah - ph).square().sum(1).mean(), (ah - nh).square().sum(1).mean()
    x = embed(x)
    distances = torch.cdist(x, x).square()
    same = labels[:, None] == labels[None]
    real_positive = distances[same].sum() / (same.sum() - len(x))
    real_negative = distances[~same].mean()
    assert positive > 1.2 * real_positive
    assert negative - positive < 0.8 * (real_negative - real_positive)
