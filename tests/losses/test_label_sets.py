"""Several labels for each image: every loss that takes them, against slow sums over memberships and over masks."""

import math

import numpy as np
import pytest
import torch

from tophit.losses import (
    FastAPLoss,
    HAPPIERLoss,
    HistogramLoss,
    MultiProxyAnchorLoss,
    MultiSimilarityLoss,
    NPairLoss,
    PNPLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    RecallAtKLoss,
    RoadmapLoss,
    SmoothAPLoss,
    SoftTripleLoss,
    TopKPrecisionLoss,
)
from tophit.losses.loss import Loss
from tophit.losses.pairwise import ContrastiveLoss, LiftedStructureLoss, MarginLoss, TripletLoss
from tophit.registry import entries

SETS = [{0, 2}, {1}, {2, 3, 4}, {0}, {1, 4}, {3}, {0, 1, 2}]
LABELS = torch.tensor([[*sorted(each), *[-1] * (3 - len(each))] for each in SETS])
SHARED = torch.tensor([[bool(a & b) for b in SETS] for a in SETS])
X = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
PROXIES = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def cosines() -> np.ndarray:
    unit = [torch.nn.functional.normalize(each, dim=1).numpy() for each in (PROXIES, X)]
    return unit[0] @ unit[1].T


def given(loss: Loss) -> Loss:
    loss = loss.double()
    with torch.no_grad():
        loss.proxies.copy_(PROXIES.reshape(loss.proxies.shape))
    return loss


def proxy_anchor(alpha: float, margin: float) -> float:
    s, classes = cosines(), range(5)
    present = [c for c in classes if any(c in each for each in SETS)]
    pull = [sum(math.exp(-alpha * (s[c, i] - margin)) for i, each in enumerate(SETS) if c in each) for c in present]
    push = [sum(math.exp(alpha * (s[c, i] + margin)) for i, each in enumerate(SETS) if c not in each) for c in classes]
    return sum(math.log1p(x) for x in pull) / len(present) + sum(math.log1p(x) for x in push) / 5


def per_membership(term) -> float:
    """The mean over images and each of their labels of ``term(similarity to it, similarities to no label of it)``."""
    s = cosines()
    terms = [term(s[c, i], [s[o, i] for o in range(5) if o not in each]) for i, each in enumerate(SETS) for c in each]
    return sum(terms) / len(terms)


def test_proxy_anchor_pulls_the_images_that_have_a_label_and_pushes_those_that_have_not() -> None:
    loss = given(ProxyAnchorLoss(5, 5, alpha=8.0, margin=0.2))
    assert loss(X, LABELS).item() == pytest.approx(proxy_anchor(8.0, 0.2))
    of_one = given(MultiProxyAnchorLoss(5, 5, 1, alpha=8.0, margin=0.2))
    assert of_one(X, LABELS).item() == pytest.approx(proxy_anchor(8.0, 0.2))


@pytest.mark.parametrize(
    ("loss", "term"),
    [
        (
            ProxyNCALoss(5, 5, 0.5),
            lambda own, others: math.log(sum(math.exp(4 * o) for o in others)) - 4 * own,
        ),
        (
            ProxyNCALoss(5, 5, 0.5, probability=True),
            lambda own, others: -math.log(math.exp(4 * own) / sum(math.exp(4 * o) for o in [own, *others])),
        ),
        (
            SoftTripleLoss(5, 5, 1, scale=6.0, margin=0.1),
            lambda own, others: math.log1p(sum(math.exp(6 * o) for o in others) / math.exp(6 * (own - 0.1))),
        ),
        (
            MultiProxyAnchorLoss(5, 5, 1, "data", alpha=6.0, margin=0.1),
            lambda own, others: (
                math.log1p(math.exp(-6 * (own - 0.1))) + math.log1p(sum(math.exp(6 * (o + 0.1)) for o in others))
            ),
        ),
        (
            MultiProxyAnchorLoss(5, 5, 1, "all-pairs", alpha=6.0, margin=0.1),
            lambda own, others: math.log1p(math.exp(6 * (0.1 - own)) + sum(math.exp(6 * (o + 0.1)) for o in others)),
        ),
    ],
)
def test_other_proxy_losses_are_means_over_all_memberships(loss, term) -> None:
    assert given(loss)(X, LABELS).item() == pytest.approx(per_membership(term))


def test_proxy_gradients_are_those_of_differences() -> None:
    for loss in (ProxyAnchorLoss(5, 5, 4.0), SoftTripleLoss(5, 5, 2, 4.0), ProxyNCALoss(5, 5)):
        loss = loss.double()
        assert torch.autograd.gradcheck(lambda x, loss=loss: loss(x, LABELS), X.clone().requires_grad_())


@pytest.mark.parametrize(
    "loss",
    [
        ContrastiveLoss(),
        FastAPLoss(),
        HistogramLoss(),
        LiftedStructureLoss(),
        MarginLoss(),
        MultiSimilarityLoss(),
        PNPLoss(),
        RecallAtKLoss(k=(1, 2)),
        RoadmapLoss(),
        SmoothAPLoss(),
        TopKPrecisionLoss(k=2),
        TripletLoss(),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_of_pairs_take_the_matrix_of_images_that_share_a_label(loss) -> None:
    loss = loss.double()
    assert loss(X, LABELS).item() == pytest.approx(loss(X, SHARED).item())
    memory = loss(X[:3], LABELS[:3], ref_emb=X[3:], ref_labels=LABELS[3:])
    assert memory.item() == pytest.approx(loss(X[:3], SHARED[:3, 3:], ref_emb=X[3:]).item())


def test_one_label_each_is_what_it_was() -> None:
    one = torch.tensor([0, 0, 1, 1, 2, 2, 0])
    for loss in (SmoothAPLoss(), given(ProxyAnchorLoss(5, 5)), given(SoftTripleLoss(5, 5, 1)), TripletLoss()):
        assert loss.double()(X, one[:, None]).item() == pytest.approx(loss(X, one).item())


def test_every_loss_says_what_it_takes() -> None:
    for entry in entries("loss"):
        assert isinstance(entry.load().takes_sets, bool)
        assert isinstance(entry.load().takes_paths, bool)
    assert not NPairLoss.takes_sets
    assert HAPPIERLoss.takes_paths


def test_wrong_sets_are_named() -> None:
    with pytest.raises(ValueError, match="labels must be from 0 to 4, got -2"):
        given(ProxyAnchorLoss(5, 5))(X, LABELS - 1)
    with pytest.raises(ValueError, match=r"labels must be \(7,\)"):
        SmoothAPLoss()(X, LABELS[:3])
