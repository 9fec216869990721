"""Golden values of the proxy losses: made by two implementations that share no code with this one."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tophit.losses import MultiProxyAnchorLoss, ProxyAnchorLoss, SoftTripleLoss
from tophit.losses.class_similarity import class_similarity

GOLDEN = Path(__file__).parent.parent / "golden" / "003_mpa.json"
CASES = {case["id"]: case for case in json.loads(GOLDEN.read_text())["cases"]}
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5}
VARIANT = {"mpa": "class", "mpadw": "data", "mpaap": "all-pairs"}


def make_loss(case, regularizer=None):
    """Return the loss that a case is of, with the case's proxies."""
    params, shape = case["params"], torch.tensor(case["inputs"]["w_raw"]).shape
    settings = {"gamma": params["gamma"], "regularizer": params["tau"] if regularizer is None else regularizer}
    settings["regularizer_eps"] = params["reg_eps"]
    kind = case["id"].removeprefix("hand_").split("_")[0]
    if kind == "proxyanchor":
        return ProxyAnchorLoss(shape[0], shape[2], params["alpha"], params["delta"])
    if kind == "softtriple":
        scale = {"scale": params["lam"], "margin": params["delta"], "reduction": params["reduction"]}
        return SoftTripleLoss(shape[0], shape[2], shape[1], **scale, **settings)
    scale = {"alpha": params["alpha"], "margin": params["delta"]}
    return MultiProxyAnchorLoss(shape[0], shape[2], shape[1], VARIANT[kind], **scale, **settings)


def with_proxies(loss, case, dtype):
    loss = loss.to(dtype)
    with torch.no_grad():
        loss.proxies.copy_(torch.tensor(case["inputs"]["w_raw"], dtype=dtype).reshape(loss.proxies.shape))
    return loss


def assert_close(got, expected, dtype):
    expected = torch.tensor(expected, dtype=torch.float64).reshape(got.shape)
    error = (got.detach().double() - expected).abs().max() / max(1.0, float(expected.abs().max()))
    assert float(error) <= TOLERANCE[dtype]


dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
every_loss = pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c["id"] != "hand_reg"], ids=lambda c: c["id"]
)


@dtypes
@every_loss
def test_value_and_gradients(case, dtype):
    outputs, labels = case["outputs"], torch.tensor(case["inputs"]["labels"])
    x = torch.tensor(case["inputs"]["x_raw"], dtype=dtype, requires_grad=True)
    loss = with_proxies(make_loss(case), case, dtype)
    total = loss(x, labels)
    total.backward()
    assert_close(total, outputs["total"], dtype)
    assert_close(x.grad, outputs["grad_x_raw"], dtype)
    assert_close(loss.proxies.grad, outputs["grad_w_raw"], dtype)
    bare = with_proxies(make_loss(case, regularizer=0.0), case, dtype)
    assert_close(bare(x, labels), outputs["sim_loss"], dtype)


@dtypes
@every_loss
def test_similarity_to_classes(case, dtype):
    x = functional.normalize(torch.tensor(case["inputs"]["x_raw"], dtype=dtype), dim=1)
    proxies = torch.tensor(case["inputs"]["w_raw"], dtype=dtype)
    found = class_similarity(proxies, x, case["params"]["gamma"], eps=case["params"]["reg_eps"])
    assert_close(found.similarity.T, case["outputs"]["S"], dtype)
    assert_close(found.spread, case["outputs"]["regularizer"], dtype)


@dtypes
def test_regulariser_by_hand(dtype):
    """Two orthonormal centres a class: the root of 2, halved. The loss itself is subtracted: the case has none."""
    case = CASES["hand_reg"]
    x, labels = torch.tensor(case["inputs"]["x_raw"], dtype=dtype), torch.tensor(case["inputs"]["labels"])
    losses = [
        with_proxies(MultiProxyAnchorLoss(2, 2, 2, regularizer=share), case, dtype)
        for share in (case["params"]["tau"], 0.0)
    ]
    values = [loss(x, labels) for loss in losses]
    (values[0] - values[1]).backward()
    assert_close(values[0] - values[1], case["outputs"]["expected"], dtype)
    assert losses[0].proxies.grad is not None
    assert losses[1].proxies.grad is not None
    assert_close(losses[0].proxies.grad + losses[1].proxies.grad, case["outputs"]["grad_w_raw"], dtype)


def test_defaults_are_the_golden_forms():
    """Without further options Multi-Proxy-Anchor is Eqs. 7, 13 and 17, SoftTriple its authors' code."""
    for name in ("mpa_main_a32", "mpadw_main_a32", "mpaap_main_a32", "softtriple_mean_eps_main_la20"):
        case = CASES[name]
        shape = torch.tensor(case["inputs"]["w_raw"]).shape
        kind = name.split("_")[0]
        loss = SoftTripleLoss if kind == "softtriple" else MultiProxyAnchorLoss
        fields = {} if kind == "softtriple" else {"variant": VARIANT[kind]}
        plain = with_proxies(loss(shape[0], shape[2], shape[1], **fields), case, torch.float64)
        x = torch.tensor(case["inputs"]["x_raw"], dtype=torch.float64)
        assert_close(plain(x, torch.tensor(case["inputs"]["labels"])), case["outputs"]["total"], torch.float64)
