"""Golden values of the PROFS paper's losses: made by two implementations that share no code with this one."""

import json
from pathlib import Path

import pytest
import torch

from tophit.losses import AngularLoss, ContrastiveLoss, LiftedStructureLoss, MarginLoss, NPairLoss, TripletLoss
from tophit.mining import mine

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent.parent / "golden" / "002_profs.json").read_text())["cases"]
}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])


def starting(*prefixes):
    return pytest.mark.parametrize(
        "case", [c for c in CASES.values() if c["id"].startswith(prefixes)], ids=lambda c: c["id"]
    )


def close(got, expected, dtype):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    error = (got.detach().double() - expected).abs().max() / max(1.0, float(expected.abs().max()))
    return float(error) <= TOLERANCE[dtype]


def columns(rows):
    return tuple(torch.tensor(rows).T)


def inputs_of(case, dtype):
    x = torch.tensor(case["inputs"]["x"], dtype=dtype, requires_grad=True)
    return x, torch.tensor(case["inputs"]["labels"])


@dtypes
@starting("contrastive_")
def test_contrastive(case, dtype):
    x, labels = inputs_of(case, dtype)
    loss = ContrastiveLoss(case["params"]["eps"], normalize=False)
    check_pairs(loss, x, labels, case, dtype)


@dtypes
@starting("margin_")
def test_margin(case, dtype):
    x, labels = inputs_of(case, dtype)
    loss = MarginLoss(case["params"]["eps"], case["params"]["delta"], normalize=False).to(dtype)
    check_pairs(loss, x, labels, case, dtype)
    assert close(loss.boundary.grad, case["outputs"]["grad_eps"], dtype)


def check_pairs(loss, x, labels, case, dtype):
    pairs = columns(case["inputs"]["pairs"])
    value = loss(x, labels, pairs=pairs)
    value.backward()
    assert close(value, case["outputs"]["loss"], dtype)
    assert close(x.grad, case["outputs"]["grad_x"], dtype)
    if case["id"].endswith("allpairs"):
        assert close(loss(x, labels), case["outputs"]["loss"], dtype)


@dtypes
@starting("triplet_")
def test_triplet(case, dtype):
    x, labels = inputs_of(case, dtype)
    loss = TripletLoss(case["params"]["eps"], normalize=False)
    choices = [{"triplets": columns(case["inputs"]["triplets"])}]
    choices += [{}] if case["id"].endswith("alltriplets") else []
    for choice in choices:
        x.grad = None
        value = loss(x, labels, **choice)
        value.backward()
        assert close(value, case["outputs"]["loss"], dtype)
        assert close(x.grad, case["outputs"]["grad_x"], dtype)


def pairs_with(representatives, count, without_each_other=False):
    return columns(
        [
            (r, j)
            for r in representatives
            for j in range(count)
            if j != r and not (without_each_other and j in representatives)
        ]
    )


@dtypes
@starting("lifted_")
def test_lifted(case, dtype):
    x, labels = inputs_of(case, dtype)
    representatives = case["inputs"]["reps"]
    pairs = None
    if representatives is not None:
        pairs = pairs_with(representatives, len(x), case["id"].endswith("no_rep_rep"))
    value = LiftedStructureLoss(case["params"]["alpha"])(x, labels, pairs=pairs)
    value.backward()
    assert close(value, case["outputs"]["loss"], dtype)
    assert close(x.grad, case["outputs"]["grad_x"], dtype)


@dtypes
@starting("npair_", "angular")
def test_npair_and_angular(case, dtype):
    anchors = torch.tensor(case["inputs"]["anchors"], dtype=dtype, requires_grad=True)
    positives = torch.tensor(case["inputs"]["positives"], dtype=dtype, requires_grad=True)
    count = len(anchors)
    loss = NPairLoss() if case["id"].startswith("npair") else AngularLoss(float(case["what"].removeprefix("angular")))
    labels = torch.arange(count).repeat(2)
    for pairs in (None, (torch.arange(count), torch.arange(count) + count)):
        value = loss(torch.cat([anchors, positives]), labels, pairs=pairs)
        gradients = torch.autograd.grad(value, (anchors, positives))
        assert close(value, case["outputs"]["loss"], dtype)
        assert close(gradients[0], case["outputs"]["grad_anchors"], dtype)
        assert close(gradients[1], case["outputs"]["grad_positives"], dtype)


def projection_objective(x, labels, representatives, near, far):
    """The data term of Eq. 4.6 as a margin loss: boundary in the middle, so the two hinges have these thresholds."""
    loss = MarginLoss((near + far) / 2, (far - near) / 2, normalize=False).to(x.dtype)
    return loss(x, labels, pairs=pairs_with(representatives, len(x)))


@dtypes
@starting("eq46_data_")
def test_data_term_of_a_projection(case, dtype):
    x, labels = inputs_of(case, dtype)
    params, outputs = case["params"], case["outputs"]
    value = projection_objective(x, labels, case["inputs"]["reps"], params["eps_pos"], params["eps_neg"])
    pairs = outputs["loss_sum"] / outputs["loss_mean"]
    (value * pairs).backward()
    assert close(value, outputs["loss_mean"], dtype)
    assert close(x.grad, outputs["grad_x_of_sum"], dtype)


def test_a_feasible_point_has_no_loss():
    case = CASES["feasible_point"]
    x, labels = inputs_of(case, torch.float64)
    params = case["params"]
    assert MarginLoss(params["eps_margin"], params["delta"], normalize=False)(x, labels) == 0
    assert TripletLoss(params["eps_triplet"], normalize=False)(x, labels) == 0
    contrastive = ContrastiveLoss(params["eps_contrastive"], normalize=False)(x, labels)
    assert close(contrastive, case["outputs"]["contrastive"], torch.float64)


@dtypes
def test_hard_exemplars(dtype):
    case = CASES["profs_hard_exemplars"]
    x, labels = inputs_of(case, dtype)
    params, outputs = case["params"], case["outputs"]
    mined = mine(x, labels, "balanced-hard", anchors=torch.tensor(case["inputs"]["reps"]), normalize=False)
    assert torch.stack(mined, dim=1).tolist() == outputs["triplets"]
    for name, loss in (
        ("contrastive", ContrastiveLoss(params["eps_contrastive"], normalize=False)),
        ("margin", MarginLoss(params["eps_margin"], params["delta"], normalize=False)),
        ("triplet", TripletLoss(params["eps_triplet"], normalize=False)),
    ):
        value = loss(x, labels, triplets=mined)
        (gradient,) = torch.autograd.grad(value, x)
        assert close(value, outputs[f"{name}_loss"], dtype)
        assert close(gradient, outputs[f"{name}_grad_x"], dtype)
