"""Golden values of the ranking losses: made by two implementations that share no code with this one."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tophit.losses import PNPLoss, SmoothAPLoss, TopKPrecisionLoss
from tophit.losses.pnp import VARIANTS
from tophit.losses.soft_rank import soft_rank
from tophit.losses.topk_precision import misplaced_pairs, topk_precision

GOLDEN = Path(__file__).parent.parent / "golden"
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])


def cases(name):
    return {case["id"]: case for case in json.loads((GOLDEN / name).read_text())["cases"]}


TOPK = cases("000_topk.json")
PNP = cases("001_pnp.json")


def close(got, expected, dtype):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    error = (got.detach().double() - expected).abs().max() / max(1.0, float(expected.abs().max()))
    return float(error) <= TOLERANCE[dtype]


def check_batch(make_loss, inputs, outputs, gradient_keys, dtype):
    """Check value and gradient through normalisation, and with the unit vectors as free variables."""
    value, through, free = gradient_keys
    labels = torch.tensor(inputs["labels"])
    raw = torch.tensor(inputs["x_raw"], dtype=torch.float64)
    for normalize, start, key in ((True, raw, through), (False, functional.normalize(raw, dim=1), free)):
        x = start.to(dtype).requires_grad_()
        loss = make_loss(normalize)(x, labels)
        loss.backward()
        assert close(loss, outputs[value], dtype)
        assert x.grad is not None
        assert close(x.grad, outputs[key], dtype)


@dtypes
@pytest.mark.parametrize(
    "case", [c for c in PNP.values() if c["id"].startswith(("pnp_", "smoothap_"))], ids=lambda c: c["id"]
)
def test_pnp_and_smooth_ap(case, dtype):
    params = dict(case["params"])
    temperature = params.pop("tau")
    kind = PNPLoss if "variant" in params else SmoothAPLoss
    inputs = PNP[case["inputs"]["batch"]]["inputs"]
    keys = ("loss", "grad_raw", "grad_unit")
    check_batch(
        lambda normalize: kind(**params, temperature=temperature, normalize=normalize),
        inputs,
        case["outputs"],
        keys,
        dtype,
    )


def batch_similarity(case):
    inputs = PNP[case["inputs"]["batch"]]["inputs"]
    x = functional.normalize(torch.tensor(inputs["x_raw"], dtype=torch.float64), dim=1)
    labels = torch.tensor(inputs["labels"])
    same = labels[:, None] == labels
    return x @ x.T, same & ~torch.eye(len(x), dtype=torch.bool), ~same


# All but the hard counts of the batch with ties: a soft count of 1/2 for a tie never becomes a hard one.
RANK_TABLES = [c for c in PNP.values() if c["id"].startswith("R_") and c["id"] != "R_E_ties_hard"]


@pytest.mark.parametrize("case", RANK_TABLES, ids=lambda c: c["id"])
def test_soft_rank_tables(case):
    outputs = case["outputs"]
    ranks = soft_rank(*batch_similarity(case), case["params"].get("tau", 1e-6))
    assert close(ranks[outputs["q"], outputs["i"]], outputs["R"], torch.float64)
    assert int((ranks != 0).sum()) <= len(outputs["R"])


@pytest.mark.parametrize("batch", ["A_3x4", "B_4x2", "C_uneven", "D_2x3"])
def test_smooth_ap_becomes_average_precision(batch):
    case = PNP[f"R_{batch}_hard"]
    inputs = PNP[case["inputs"]["batch"]]["inputs"]
    loss = SmoothAPLoss(temperature=1e-6, include_self=False)
    got = loss(torch.tensor(inputs["x_raw"], dtype=torch.float64), torch.tensor(inputs["labels"]))
    assert close(got, case["outputs"]["one_minus_mAP"], torch.float64)


@dtypes
@pytest.mark.parametrize(
    ("column", "variant", "alpha", "b"),
    [
        ("O", "O", 1, 1),
        ("Iu", "Iu", 1, 1),
        ("Ib_b1", "Ib", 1, 1),
        ("Ib_b2", "Ib", 1, 2),
        ("Ib_b4", "Ib", 1, 4),
        ("Ds", "Ds", 1, 1),
        ("Dq_alpha1", "Dq", 1, 1),
        ("Dq_alpha2", "Dq", 2, 1),
        ("Dq_alpha4", "Dq", 4, 1),
    ],
)
def test_derivative_table(column, variant, alpha, b, dtype):
    table = PNP["derivative_table"]
    ranks = torch.tensor(table["inputs"]["R"], dtype=dtype)
    chosen = VARIANTS[variant](alpha, b)
    outputs = table["outputs"]
    assert close(chosen.value(ranks), outputs[f"{column}_value"], dtype)
    assert close(chosen.derivative(ranks), outputs[f"{column}_dvalue_dR"], dtype)


@dtypes
@pytest.mark.parametrize("case", [c for c in TOPK.values() if "s" in c["inputs"]], ids=lambda c: c["id"])
def test_topk_lists(case, dtype):
    params, outputs = case["params"], case["outputs"]
    s = torch.tensor([case["inputs"]["s"]], dtype=dtype, requires_grad=True)
    y = torch.tensor([case["inputs"]["y"]]).bool()
    loss = topk_precision(s, y, ~y, params["k"], params["gamma"]).sum()
    loss.backward()
    assert close(loss, outputs["loss"], dtype)
    gradient = outputs.get("grad_s", outputs.get("grad_s_lower_index_first"))
    if gradient is not None:
        assert s.grad is not None
        assert s.grad[0].tolist() == gradient
    pairs = misplaced_pairs(s, y, ~y, params["k"], params["gamma"])
    assert sorted(pairs.positives.tolist()) == outputs["P"]
    assert sorted(pairs.negatives.tolist()) == outputs["N"]


@pytest.mark.parametrize("margin", ["0.0", "0.1"])
def test_topk_figures(margin):
    """Figure 2: 0.65 + 0.6 - (0.55 + 0.4). Figure 3: 0.8 + 0.65 - (0.55 + 0.53)."""
    for figure, exact in (("fig2", 0.65 + 0.6 - (0.55 + 0.4)), ("fig3", 0.8 + 0.65 - (0.55 + 0.53))):
        case = TOPK[f"{figure}_gamma{margin}"]
        s = torch.tensor([case["inputs"]["s"]], dtype=torch.float64)
        y = torch.tensor([case["inputs"]["y"]]).bool()
        loss = topk_precision(s, y, ~y, case["params"]["k"], case["params"]["gamma"])
        assert float(loss) == pytest.approx(exact, abs=1e-15)


@dtypes
@pytest.mark.parametrize("case", [c for c in TOPK.values() if "x_raw" in c["inputs"]], ids=lambda c: c["id"])
def test_topk_batches(case, dtype):
    k, margin = case["params"]["k"], case["params"]["gamma"]
    keys = ("loss_sum", "grad_raw_of_sum", "grad_unit_of_sum")
    check_batch(
        lambda normalize: TopKPrecisionLoss(k, margin, normalize=normalize),
        case["inputs"],
        case["outputs"],
        keys,
        dtype,
    )
    x, labels = torch.tensor(case["inputs"]["x_raw"], dtype=dtype), torch.tensor(case["inputs"]["labels"])
    assert close(TopKPrecisionLoss(k, margin, "mean")(x, labels), case["outputs"]["loss_mean"], dtype)
    positives, negatives = TopKPrecisionLoss(k, margin).misplaced(x, labels)
    for query, sets in case["outputs"]["sets"].items():
        assert sorted(positives[int(query)].tolist()) == sets["P"]
        assert sorted(negatives[int(query)].tolist()) == sets["N"]
