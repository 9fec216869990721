"""PROFS: the proximal term, what the loss is allowed to see, and that projections lead to a feasible point."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tophit import losses
from tophit.batches import RepresentativeBatchSampler
from tophit.methods import PlainMethod, ProjectionMethod, TrainingBatch
from tophit.methods.projection import Proximal, exemplars

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent.parent / "golden" / "002_profs.json").read_text())["cases"]
}
PAIR_LOSSES = {
    "contrastive": losses.ContrastiveLoss,
    "triplet": losses.TripletLoss,
    "margin": losses.MarginLoss,
    "lifted": losses.LiftedStructureLoss,
    "n-pair": losses.NPairLoss,
    "angular": losses.AngularLoss,
}


class Toy:
    """12 classes of 15 points around centres, and a small network to unit vectors, as in SPEC's measured toy."""

    def __init__(self, seed=0, classes=12, per_class=15, spread=0.3, dtype=torch.float32):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(classes).repeat_interleave(per_class)
        centres = torch.randn(classes, 10, generator=generator)
        self.inputs = (centres[self.labels] + spread * torch.randn(len(self.labels), 10, generator=generator)).to(dtype)
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 6)).to(dtype)

    def embed(self, inputs):
        return functional.normalize(self.net(inputs), dim=1)

    def batch(self, rows):
        rows = torch.as_tensor(rows)
        return TrainingBatch(self.inputs[rows], self.labels[rows], rows)

    def violations(self, near=0.5, far=1.2):
        with torch.no_grad():
            x = self.embed(self.inputs)
        distances = torch.cdist(x, x)
        same = self.labels[:, None] == self.labels
        positives = same & ~torch.eye(len(x), dtype=torch.bool)
        return (distances[positives] > near).float().mean().item(), (distances[~same] < far).float().mean().item()


def method_for(toy, loss, sampler, optimizer=None, **settings):
    optimizer = optimizer or torch.optim.SGD([*toy.net.parameters(), *loss.parameters()], lr=0.05)
    return ProjectionMethod(toy.embed, loss, optimizer, sampler, **settings)


def weights(toy):
    return [p.detach().clone() for p in toy.net.parameters()]


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("eq46_linear")])
def test_the_gradient_of_equation_4_6(case):
    """Data term plus proximal term of a linear map, against the golden gradient."""
    inputs, params, outputs = CASES[case]["inputs"], CASES[case]["params"], CASES[case]["outputs"]
    x, w, before = (torch.tensor(inputs[k], dtype=torch.float64) for k in ("X", "W", "W_prev"))
    map_ = nn.Parameter(before.clone())
    proximal = Proximal([map_], params["lam"])
    proximal.hold()
    with torch.no_grad():
        map_.copy_(w)
    near, far = params["eps_pos"], params["eps_neg"]
    loss = losses.MarginLoss((near + far) / 2, (far - near) / 2, normalize=False).double()
    labels = torch.tensor(inputs["labels"])
    pairs = [(r, j) for r in inputs["reps"] for j in range(len(x)) if j != r]
    i, j = torch.tensor(pairs).T
    data = loss(x @ map_.T, labels, pairs=(i, j)) * len(pairs)
    data.backward()
    proximal.add_gradient()
    assert data.item() == pytest.approx(outputs["data"], abs=1e-9)
    torch.testing.assert_close(map_.grad, torch.tensor(outputs["grad_W"], dtype=torch.float64), rtol=0, atol=1e-8)


def test_the_proximal_gradient_is_lambda_times_the_way_from_the_projections_start():
    toy = Toy(dtype=torch.float64)
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=1)
    loss = losses.TripletLoss()
    method = method_for(toy, loss, sampler, proximal=0.7)
    start = None
    for _ in range(3 * sampler.steps_per_projection):
        batch = toy.batch(sampler.next_batch())
        before = weights(toy)
        if sampler.step == 1:
            start = before
        assert start is not None
        representative = torch.from_numpy(sampler.is_representative(batch.rows.numpy()))
        x = toy.embed(batch.inputs)
        data = torch.autograd.grad(
            loss(x, batch.labels, **exemplars(loss, x.detach(), batch.labels, representative)), toy.net.parameters()
        )
        method.step(batch)
        for parameter, gradient, then, first in zip(toy.net.parameters(), data, before, start, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad - gradient, 0.7 * (then - first), rtol=1e-12, atol=1e-14)
            if sampler.step == 1:
                assert torch.equal(parameter.grad, gradient)  # 0 at the first step
        for held, first in zip(method.proximal.held, start, strict=True):
            assert torch.equal(held, first)  # a copy taken then


def test_the_loss_is_not_held_back():
    toy = Toy()
    loss = losses.MarginLoss()
    method = method_for(toy, loss, RepresentativeBatchSampler(toy.labels.tolist(), 4, 3))
    assert len(method.proximal.parameters) == len(list(toy.net.parameters()))
    assert all(p is not loss.boundary for p in method.proximal.parameters)


def test_at_rate_times_lambda_one_a_step_starts_over_from_the_projections_start():
    toy = Toy(dtype=torch.float64)
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=2)
    optimizer = torch.optim.SGD(toy.net.parameters(), lr=0.5)
    loss = losses.TripletLoss()
    method = method_for(toy, loss, sampler, optimizer, proximal=2.0)
    method.step(toy.batch(sampler.next_batch()))
    start = method.proximal.held
    batch = toy.batch(sampler.next_batch())
    x = toy.embed(batch.inputs)
    representative = torch.from_numpy(sampler.is_representative(batch.rows.numpy()))
    value = loss(x, batch.labels, **exemplars(loss, x.detach(), batch.labels, representative))
    data = torch.autograd.grad(value, toy.net.parameters())
    method.step(batch)
    for parameter, first, gradient in zip(toy.net.parameters(), start, data, strict=True):
        torch.testing.assert_close(parameter.detach(), first - 0.5 * gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["pnp", "proxy-anchor"])
def test_lambda_zero_is_the_plain_method_on_the_same_batches(name):
    results = []
    for projection in (True, False):
        toy = Toy()
        sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=1)
        torch.manual_seed(1)
        loss = losses.PNPLoss(temperature=0.1) if name == "pnp" else losses.ProxyAnchorLoss(12, 6)
        optimizer = torch.optim.Adam([*toy.net.parameters(), *loss.parameters()], lr=1e-3)
        if projection:
            method = method_for(toy, loss, sampler, optimizer, proximal=0.0)
        else:
            method = PlainMethod(toy.embed, loss, optimizer)
        for _ in range(12):
            method.step(toy.batch(sampler.next_batch()))
        results.append(weights(toy))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_the_first_cycle_may_be_free():
    for free in (True, False):
        toy = Toy()
        sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=1)
        loss = losses.TripletLoss(margin=-9.0)  # no term is ever active: what moves is the proximal term
        method = method_for(toy, loss, sampler, proximal=1.0, proximal_in_first_cycle=not free)
        method.step(toy.batch(sampler.next_batch()))
        with torch.no_grad():
            toy.net[0].weight.add_(1.0)
        method.step(toy.batch(sampler.next_batch()))
        assert bool(toy.net[0].weight.grad.any()) is not free
        for _ in range(sampler.steps_per_projection):
            method.step(toy.batch(sampler.next_batch()))
        assert method.projection == 1
        with torch.no_grad():
            toy.net[0].weight.add_(1.0)
        method.step(toy.batch(sampler.next_batch()))
        assert toy.net[0].weight.grad.any()


@pytest.mark.parametrize("name", ["contrastive", "triplet", "margin", "lifted"])
def test_no_exemplar_has_two_ends_that_are_no_representatives(name):
    """Fresh images have a gradient only through representatives: without those, the loss has nothing to look at."""
    toy = Toy()
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 4)
    loss = PAIR_LOSSES[name]()
    batch = toy.batch(sampler.next_batch())
    representative = torch.from_numpy(sampler.is_representative(batch.rows.numpy()))
    chosen = exemplars(loss, toy.embed(batch.inputs).detach(), batch.labels, representative)
    if "triplets" in chosen:
        a, p, n = chosen["triplets"]
        i, j = torch.cat([a, a]), torch.cat([p, n])
        assert len(a) == 4 * 3  # each representative has 3 positives and as many negatives
        assert representative[a].all()
    else:
        i, j = chosen["pairs"]
        assert len(i) == 4 * 15
    assert (representative[i] | representative[j]).all()
    assert (i != j).all()


@pytest.mark.parametrize("name", ["n-pair", "angular"])
def test_representatives_are_the_positives_of_npair_and_angular(name):
    toy = Toy()
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3)
    batch = toy.batch(sampler.next_batch())
    representative = torch.from_numpy(sampler.is_representative(batch.rows.numpy()))
    anchors, positives = exemplars(PAIR_LOSSES[name](), toy.embed(batch.inputs), batch.labels, representative)["pairs"]
    assert len(anchors) == 8
    assert not representative[anchors].any()
    assert representative[positives].all()
    assert torch.equal(batch.labels[anchors], batch.labels[positives])


def run_toy(seed, steps=600, proximal=1e-3, projection_length=9, toy=None, **sampling):
    toy = toy or Toy(seed)
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 6, 4, seed, steps=projection_length, **sampling)
    loss = losses.MarginLoss(boundary=0.85, margin=0.35)  # Eq. 4.6 with 0.5 and 1.2
    loss.requires_grad_(False)
    optimizer = torch.optim.Adam(toy.net.parameters(), lr=3e-3)
    method = method_for(toy, loss, sampler, optimizer, proximal=proximal)
    before = toy.violations()
    logged = [method.step(toy.batch(sampler.next_batch())) for _ in range(steps)]
    return toy, before, logged


@pytest.mark.parametrize("hncm", [False, "seeds", "pool", "chain"])
def test_violated_constraints_fall_on_separable_data(hncm):
    toy, before, logged = run_toy(0, hncm=hncm)
    after = toy.violations()
    assert max(before) > 0.3
    assert after[0] < 0.05
    assert after[1] < 0.05
    ends = [line for line in logged if "violated_positive" in line]
    assert len(ends) == 600 // 9
    assert [line["projection"] for line in ends] == list(range(len(ends)))
    assert ends[-1]["violated_positive"] + ends[-1]["violated_negative"] < 0.1
    assert ends[0]["violated_negative"] > 0.3


def test_all_constraints_are_met_where_classes_are_well_apart():
    toy, before, _ = run_toy(0, toy=Toy(0, classes=6, per_class=8, spread=0.05))
    assert max(before) > 0.3
    assert toy.violations() == (0, 0)


@pytest.mark.slow
def test_changing_representatives_beats_keeping_them():
    changing, kept = (
        np.mean([sum(run_toy(seed, projection_length=length)[0].violations()) for seed in range(3)])
        for length in (9, 10**6)
    )
    assert changing < kept


class _Interval(nn.Module):
    """The distance of theta to the intervals [low, high] of a batch; its 'embeddings' are (theta, low, high)."""

    normalize = False

    def forward(self, embeddings, labels):
        theta, low, high = embeddings.T
        return (functional.relu(low - theta) + functional.relu(theta - high)).sum()


@pytest.mark.parametrize("start", [-7.0, 9.0])
def test_projections_onto_intervals_end_in_their_intersection(start):
    """Convex sanity check: one class whose images are intervals; the representative is the one to project onto."""
    intervals = torch.tensor([[-5.0, 1.0], [0.5, 8.0], [-1.0, 2.0], [0.25, 0.9]])  # common to all: [0.5, 0.9]
    theta = nn.Parameter(torch.tensor(start))
    sampler = RepresentativeBatchSampler([0] * 4, 1, 1, steps=40)
    method = ProjectionMethod(
        lambda rows: torch.cat([theta.expand(len(rows), 1), rows], dim=1),
        _Interval(),
        torch.optim.SGD([theta], lr=0.05),
        sampler,
        proximal=1e-3,
    )
    for _ in range(40 * 30):
        rows = torch.tensor(sampler.next_batch())
        method.step(TrainingBatch(intervals[rows], torch.zeros(len(rows), dtype=torch.long), rows))
    assert 0.5 - 0.05 <= theta.item() <= 0.9 + 0.05  # a step of SGD is 0.05


@pytest.mark.parametrize("name", [*PAIR_LOSSES, "pnp", "topk", "smooth-ap", "proxy-anchor"])
def test_any_loss_of_the_library_takes_projections(name):
    toy = Toy()
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=1, hncm=True)
    others = {
        "pnp": losses.PNPLoss,
        "topk": lambda: losses.TopKPrecisionLoss(reduction="mean"),
        "smooth-ap": losses.SmoothAPLoss,
        "proxy-anchor": lambda: losses.ProxyAnchorLoss(12, 6),
    }
    loss = {**PAIR_LOSSES, **others}[name]()
    optimizer = torch.optim.Adam([*toy.net.parameters(), *loss.parameters()], lr=3e-3)
    method = method_for(toy, loss, sampler, optimizer)
    values = [method.step(toy.batch(sampler.next_batch()))["loss"] for _ in range(120)]
    assert np.isfinite(values).all()
    assert np.mean(values[-20:]) < np.mean(values[:20])


@pytest.mark.parametrize("hncm", [False, "seeds", "pool", "chain"])
def test_the_end_of_a_projection_tells_how_evenly_classes_were_used(hncm):
    toy = Toy()
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=3, hncm=hncm)
    method = method_for(toy, losses.TripletLoss(), sampler)
    for _ in range(3):
        used = np.zeros(12, dtype=int)
        for _ in range(sampler.steps_per_projection):
            batch = toy.batch(sampler.next_batch())
            used[batch.labels.unique().numpy()] += 1
            logged = method.step(batch)
            assert ("class_use_min" in logged) is (sampler.step == sampler.steps_per_projection)
        assert (logged["class_use_min"], logged["class_use_max"]) == (used.min(), used.max())
        assert logged["classes_unused"] == np.count_nonzero(used == 0)


def test_a_projection_of_an_older_checkpoint_is_not_summed_up_in_part():
    toy = Toy()
    sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=1)
    method = method_for(toy, losses.TripletLoss(), sampler)
    method.step(toy.batch(sampler.next_batch()))
    state = method.state_dict()
    del state["sampler"]["class_use"], state["sampler"]["reading"]
    method.load_state_dict(state)
    logs = [method.step(toy.batch(sampler.next_batch())) for _ in range(5)]
    assert ["violated_positive" in each for each in logs] == [False, True, False, False, True]
    assert ["class_use_min" in each for each in logs] == [False, False, False, False, True]


@pytest.mark.parametrize("hncm", ["seeds", "pool", "chain"])
def test_state_restores_a_method_inside_a_projection(hncm):
    def make():
        toy = Toy()
        sampler = RepresentativeBatchSampler(toy.labels.tolist(), 4, 3, rho=2, hncm=hncm)
        optimizer = torch.optim.Adam(toy.net.parameters(), lr=1e-2)
        return toy, sampler, method_for(toy, losses.TripletLoss(), sampler, optimizer, proximal=0.1)

    toy, sampler, method = make()
    for _ in range(9):
        method.step(toy.batch(sampler.next_batch()))
    assert 1 < sampler.step < sampler.steps_per_projection
    saved = method.state_dict()
    other, other_sampler, second = make()
    other.net.load_state_dict(toy.net.state_dict())
    second.load_state_dict(json_like(saved))
    for _ in range(15):
        one, two = (
            m.step(t.batch(s.next_batch())) for t, s, m in ((toy, sampler, method), (other, other_sampler, second))
        )
        assert one == two
    for a, b in zip(weights(toy), weights(other), strict=True):
        assert torch.equal(a, b)


def json_like(state):
    """Through a file, as a checkpoint goes."""
    import io

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)
