"""The generation method: who learns in which step, in which order, and what it makes of synthetic embeddings."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tophit.losses import NPairLoss, TripletLoss
from tophit.methods import GenerationMethod, GenerationSettings, TrainingBatch
from tophit.methods.thsg.components import SampleBuffer
from tophit.methods.thsg.equations import balance_weights, reverse_margin
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
    from tophit.methods.thsg.components import random_triplets

    triplets = random_triplets(batch.labels)
    loss = TripletLoss()(twin.embed(batch.inputs), batch.labels, triplets=tuple(triplets))
    (expected,) = torch.autograd.grad(loss, twin.embed.head.weight)  # type: ignore[attr-defined]
    torch.testing.assert_close(grads[0], expected)


def test_a_step_in_which_no_generated_sample_is_right_leaves_nothing_to_reuse():
    buffer = SampleBuffer(2)
    x, y = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    buffer.add(x[:0], y[:0])
    assert [len(part) for part in buffer.nearest_others(x, y)] == [0, 0, 0]
    buffer.add(x[2:], y[2:])
    assert buffer.nearest_others(x, y)[2].tolist() == [0, 1]


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
        settings=GenerationSettings(pretrain_epochs=1, classifier_lr=1e-2, generator_lr=1e-3, discriminator_lr=1e-4),
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
