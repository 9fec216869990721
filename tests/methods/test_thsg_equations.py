"""The equations of THSG: golden values made by two implementations that share no code with this one, and properties."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tophit.methods.thsg import components
from tophit.methods.thsg import equations as thsg

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent.parent / "golden" / "004_thsg.json").read_text())["cases"]
}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
LOSSES = CASES["all_losses_3_triplets"]


def close(got, expected, dtype):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    error = (got.detach().double() - expected).abs().max() / max(1.0, float(expected.abs().max()))
    return float(error) <= TOLERANCE[dtype]


@dtypes
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("plm_lambda")])
def test_lambda(name, dtype):
    case = CASES[name]
    params = case["params"]
    d = torch.tensor(case["inputs"]["d"], dtype=dtype)
    assert close(thsg.plm_lambda(d, params["dt"], params["alpha"], params["gamma"]), case["outputs"]["lam"], dtype)


@dtypes
@pytest.mark.parametrize("metric", ["sql2", "l2"])
def test_manipulation_and_its_gradient(metric, dtype):
    case = CASES[f"plm_{metric}"]
    params, inputs, outputs = case["params"], case["inputs"], case["outputs"]
    a, p, *cotangents = (torch.tensor(inputs[key], dtype=dtype) for key in ("a", "p", "cot_a", "cot_p"))
    a.requires_grad_()
    p.requires_grad_()
    d = thsg.pair_distance(a, p, metric)
    assert close(d, outputs["d"], dtype)
    epochs = components.EpochMean()
    epochs.add(d)
    epochs.end_epoch()
    assert epochs.value() == pytest.approx(params["dt"], rel=TOLERANCE[dtype])
    for suffix in ("", "_lambda_detached"):
        stretched = thsg.plm(
            a, p, params["dt"], params["alpha"], params["gamma"], metric, detach_lambda=suffix == "_lambda_detached"
        )
        assert close(stretched[0], outputs["a_star"], dtype)
        assert close(stretched[1], outputs["p_star"], dtype)
        grads = torch.autograd.grad((stretched * torch.stack(cotangents)).sum(), [a, p])
        assert close(grads[0], outputs[f"vjp_a{suffix}"], dtype)
        assert close(grads[1], outputs[f"vjp_p{suffix}"], dtype)


@dtypes
def test_weights(dtype):
    case = CASES["balance_weights"]
    beta, nu = case["params"]["beta"], case["params"]["nu"]
    loss_g = torch.tensor(case["inputs"]["LG"], dtype=dtype)
    w_org, w_hard = thsg.balance_weights(loss_g, beta)
    assert close(w_org, case["outputs"]["w_org"], dtype)
    assert close(w_hard, case["outputs"]["w_hard"], dtype)
    assert close(thsg.reverse_margin(loss_g, nu, beta), case["outputs"]["tau_r"], dtype)


class Golden:
    """The tensors of the golden case of all losses, as leaves, and its linear heads."""

    def __init__(self, dtype):
        inputs = LOSSES["inputs"]
        self.leaves = {
            key: torch.tensor(value, dtype=dtype, requires_grad=True)
            for key, value in inputs.items()
            if not key.startswith("y_")
        }
        anchor, negative = torch.tensor(inputs["y_anchor"]), torch.tensor(inputs["y_negative"])
        self.labels = torch.stack([anchor, anchor, negative])
        self.params = LOSSES["params"]

    def stack(self, *names):
        return torch.stack([self.leaves[name] for name in names])

    def head(self, kind):
        return lambda x: x @ self.leaves[f"W{kind}"].T + self.leaves[f"b{kind}"]


def losses_of(golden):
    """Return each loss per triplet, with its parts, by the golden file's names."""
    params, labels = golden.params, golden.labels
    classifier, d1, d2 = golden.head("c"), golden.head("1"), golden.head("2")
    pair, stretched, x1 = golden.stack("A", "P"), golden.stack("A_star", "P_star"), golden.stack("A1", "P1")
    original, x2 = golden.stack("A", "P", "N"), golden.stack("Ah", "Ph", "Nh")
    org, hard = thsg.triplet(original, params["tau"]), thsg.triplet(x2, params["tau"])
    samples, sample_labels = torch.cat([original, x1, x2]), torch.cat([labels, labels[:2], labels])
    class_f = thsg.softmax_sum(classifier(samples), sample_labels)
    w_org, _ = thsg.balance_weights(params["L_G2"], params["beta"])
    tau_r = thsg.reverse_margin(params["L_G2"], params["nu"], params["beta"])
    eta, mu = params["eta"], params["mu"]
    return {
        "org": org,
        "hard": hard,
        "class_F": class_f,
        "LF": thsg.embedding_loss(org, class_f, hard, w_org, params["phi"]),
        **thsg.generator1_loss(x1, stretched, labels[:2], classifier, d1, eta),
        "LDG1": thsg.discriminator1_loss(pair, x1, stretched, d1),
        **thsg.generator2_loss(x2, x1, labels, classifier, d2, tau_r, eta, mu),
        "LDG2": thsg.discriminator2_loss(torch.cat([x1, original[2:]]), x2, labels, d2),
    }


@dtypes
def test_every_loss_and_part(dtype):
    found = losses_of(Golden(dtype))
    for number, expected in enumerate(LOSSES["outputs"]["per_triplet"]):
        assert set(expected) == set(found) | {"LDG1", "LDG2"}
        for name, value in expected.items():
            assert close(found[name][number], value, dtype), name


@dtypes
@pytest.mark.parametrize("loss", ["LF", "LG1", "LDG1", "LG2", "LDG2"])
def test_every_gradient(loss, dtype):
    golden, outputs = Golden(dtype), LOSSES["outputs"]
    mean = losses_of(golden)[loss].mean()
    assert close(mean, outputs[f"{loss}_mean"], dtype)
    mean.backward()
    prefix = f"d{loss}_d"
    checked = {name.removeprefix(prefix) for name in outputs if name.startswith(prefix)}
    assert len(checked) >= 6
    for name in checked:
        assert close(golden.leaves[name].grad, outputs[prefix + name], dtype), name


def test_the_second_discriminator_without_its_factor():
    golden = Golden(torch.float64)
    real, x2 = golden.stack("A1", "P1", "N"), golden.stack("Ah", "Ph", "Nh")
    plain, scaled = (
        thsg.discriminator2_loss(real, x2, golden.labels, golden.head("2"), normalize=n) for n in (False, True)
    )
    torch.testing.assert_close(plain, 6 * scaled)


@given(st.floats(0.01, 3), st.floats(0, 1), st.floats(0, 1), st.lists(st.floats(0, 4), min_size=2, max_size=20))
def test_lambda_falls_from_alpha_plus_gamma_without_a_jump(dt, alpha, gamma, distances):
    at = torch.tensor([0.0, dt, dt * (1 - 1e-9), *sorted(distances)], dtype=torch.float64)
    zero, here, before, *rest = thsg.plm_lambda(at, dt, alpha, gamma).tolist()
    assert zero == pytest.approx(alpha + gamma)
    assert here == pytest.approx(alpha)
    assert before == pytest.approx(alpha, abs=1e-6)
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(rest))


def test_a_stretched_pair_is_one_plus_two_lambda_as_far_apart():
    a, p = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    d = (a - p).square().sum(1)
    stretched = thsg.plm(a, p, dt=d.mean())
    factor = (stretched[0] - stretched[1]).norm(dim=1) / (a - p).norm(dim=1)
    torch.testing.assert_close(factor, 1 + 2 * thsg.plm_lambda(d, d.mean()))


@pytest.mark.parametrize("metric", ["sql2", "l2"])
def test_pairs_that_coincide_and_a_threshold_of_0_give_finite_values_and_gradients(metric):
    a = torch.ones(3, 4, requires_grad=True)
    stretched = thsg.plm(a, a.detach().clone(), dt=0.0, metric=metric)
    (gradient,) = torch.autograd.grad(stretched.square().sum(), a)
    assert stretched.isfinite().all()
    assert gradient.isfinite().all()


def test_before_the_first_step_generated_triplets_weigh_nothing():
    assert [float(w) for w in thsg.balance_weights(torch.inf)] == [1.0, 0.0]
    assert float(thsg.reverse_margin(torch.inf)) == 0.0
    assert [float(w) for w in thsg.balance_weights(0.0)] == [0.0, 1.0]


def test_equations_pass_gradcheck():
    torch.manual_seed(0)
    golden = Golden(torch.float64)
    star, x1, x2 = golden.stack("A_star", "P_star"), golden.stack("A1", "P1"), golden.stack("Ah", "Ph", "Nh")
    classifier, d1, d2 = golden.head("c"), golden.head("1"), golden.head("2")
    leaves = [t.detach().requires_grad_() for t in (star, x1, x2)]
    assert torch.autograd.gradcheck(
        lambda s, x: thsg.generator1_loss(x, s, golden.labels[:2], classifier, d1)["LG1"], leaves[:2]
    )
    assert torch.autograd.gradcheck(
        lambda x, y: thsg.generator2_loss(y, x, golden.labels, classifier, d2, tau_r=2.0)["LG2"], leaves[1:]
    )
    assert torch.autograd.gradcheck(lambda s: thsg.plm(s[0], s[1], 0.7), leaves[:1])
