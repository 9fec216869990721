"""FastAP, histogram, multi-similarity and Blackbox AP: small cases by hand, the peer library, blackbox gradients.

What they share with the other ranking losses is in test_ranking_losses.py.
"""

import math
import warnings

import pytest
import torch
from pytorch_metric_learning import losses as peer
from pytorch_metric_learning import miners as peer_miners
from tests.losses.test_ranking_losses import UNEVEN, batch, value_and_gradient
from tests.reference import ranking as reference

from tophit.losses import BlackboxAPLoss, FastAPLoss, HistogramLoss, MultiSimilarityLoss
from tophit.losses.blackbox_ap import blackbox_ranking
from tophit.losses.fastap import fastap
from tophit.losses.histogram import histogram_loss
from tophit.losses.multi_similarity import multi_similarity
from tophit.losses.soft_histogram import soft_histograms


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def mask(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Positives and negatives of one query, from a word such as '+-+'."""
    return torch.tensor([[letter == "+" for letter in text]]), torch.tensor([[letter == "-" for letter in text]])


# --- by hand


def test_a_value_counts_in_the_two_bins_around_it() -> None:
    found, wrong = soft_histograms(row(0.0, 0.25, 1.9, 5.0, 0.6, 1.5), *mask("++++ -"), 2, 0, 2)
    torch.testing.assert_close(found, row(1 + 0.75, 0.25 + 0.1, 0.9 + 1))
    torch.testing.assert_close(wrong, row(0, 0.5, 0.5))


@pytest.mark.parametrize(
    ("distances", "word", "expected"),
    [((0, 2, 1), "++-", (1 + 2 / 3) / 2), ((0.5, 0.5), "+-", 0.5), ((3, 1), "+-", 1 / 2), ((1, 3), "+-", 1.0)],
)
def test_fastap_of_four_intervals(distances: tuple[float, ...], word: str, expected: float) -> None:
    assert fastap(row(*distances), *mask(word), bins=4).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("similarities", "word", "expected"), [((0.5, 0), "+-", 0.5), ((1, -1), "+-", 0), ((-1, 1), "+-", 1)]
)
def test_histogram_loss_of_two_intervals(similarities: tuple[float, ...], word: str, expected: float) -> None:
    assert histogram_loss(row(*similarities), *mask(word), bins=2).item() == pytest.approx(expected)


def test_multi_similarity_of_a_positive_and_a_negative() -> None:
    found = multi_similarity(row(0.6, 0.4), *mask("+-"), alpha=2, beta=50, base=0.5)
    assert found.item() == pytest.approx(0.5 * math.log(1 + math.exp(-0.2)) + math.log(1 + math.exp(-5)) / 50)
    assert found.item() == pytest.approx(0.2992037, abs=1e-7)


def test_mining_leaves_out_pairs_that_are_apart_by_more_than_epsilon() -> None:
    """Unit vectors at chosen angles: with epsilon 0.1 the first image's pairs (0.6 and 0.4) teach nothing."""
    angles = torch.tensor([0.0, math.acos(0.6), math.acos(0.4)], dtype=torch.float64)
    x, labels = torch.stack([angles.cos(), angles.sin()], 1), torch.tensor([0, 0, 1])
    only_first = (torch.tensor([0]), torch.tensor([1]), torch.tensor([0]), torch.tensor([2]))
    for epsilon, counts in ((0.1, False), (0.21, True)):
        assert bool(MultiSimilarityLoss(epsilon=epsilon)(x, labels, only_first) > 0) == counts
    alone = MultiSimilarityLoss(mining=False)(x, labels, only_first)
    assert alone.item() == pytest.approx(0.2992037 / 3, abs=1e-7)


def test_blackbox_ap_by_hand() -> None:
    """Ranks 2, 1, 3; moved by 4 times the gradient of the ranks: 1, 3, 2."""
    scores = row(0.3, 0.5, 0.2).requires_grad_()
    value = blackbox_ranking(scores, *mask("+-+"), 4.0, 0.0, "ap")
    assert value.item() == pytest.approx(1 - (1 / 2 + 2 / 3) / 2)
    torch.testing.assert_close(torch.autograd.grad(value, scores)[0], row(-0.25, 0.5, -0.25))


def test_blackbox_recall_by_hand() -> None:
    value = blackbox_ranking(row(0.3, 0.5, 0.2, 0.25), *mask("+-+-"), 4.0, 0.0, "recall")
    assert value.item() == pytest.approx((math.log(1 + math.log(2)) + math.log(1 + math.log(3))) / 2)


def test_the_margin_turns_a_narrow_lead_into_a_loss() -> None:
    narrow = row(0.51, 0.50)
    assert blackbox_ranking(narrow, *mask("+-"), 4.0, 0.0, "ap").item() == 0
    assert blackbox_ranking(narrow, *mask("+-"), 4.0, 0.02, "ap").item() == pytest.approx(0.5)


# --- the gradient of Blackbox AP


@pytest.mark.parametrize("measure", ["ap", "recall"])
@pytest.mark.parametrize("interpolation", [0.5, 4.0, 40.0])
def test_the_gradient_of_blackbox_ranks_is_the_difference_of_two_rankings(measure, interpolation: float) -> None:
    x, labels = batch(UNEVEN)
    s = torch.nn.functional.normalize(x, dim=1).detach()
    s = (s @ s.T).requires_grad_()
    same = labels[:, None] == labels
    positive, negative = same & ~torch.eye(len(labels), dtype=torch.bool), ~same
    value = blackbox_ranking(s, positive, negative, interpolation, 0.02, measure)
    expected, gradient = reference.blackbox(s.tolist(), labels.tolist(), interpolation, 0.02, measure)
    assert value.item() == pytest.approx(expected)
    found = torch.autograd.grad(value, s)[0]
    assert found.any()
    torch.testing.assert_close(found, torch.tensor(gradient, dtype=torch.float64))


def test_scaling_a_blackbox_loss_scales_its_gradient() -> None:
    """Loss scaling and weights must not change how far ranks are interpolated."""
    x, labels = batch(UNEVEN)
    loss = BlackboxAPLoss()
    _, gradient = value_and_gradient(loss, x, labels)
    _, scaled = value_and_gradient(lambda *given: 1024 * loss(*given), x, labels)
    torch.testing.assert_close(scaled, 1024 * gradient)


@pytest.mark.parametrize("measure", ["ap", "recall"])
def test_descending_by_blackbox_gradients_improves_the_ranking(measure) -> None:
    x, labels = batch([0, 1, 2, 3] * 4, dim=8)
    loss = BlackboxAPLoss(measure=measure)
    first = loss(x, labels).item()
    for _ in range(100):
        _, gradient = value_and_gradient(loss, x, labels)
        x = (x - 0.5 * gradient).detach().requires_grad_()
    assert loss(x, labels).item() < 0.75 * first


# --- the peer


@pytest.mark.parametrize("labels", [UNEVEN, [0, 1, 2, 0, 1, 2, 2, 3, 0, 1]], ids=["uneven", "shuffled"])
def test_they_are_the_peers_losses(labels) -> None:
    x, y = batch(labels)
    small = torch.where(y < 0, 99, y)  # the peer's labels must fit into floats
    mined = peer_miners.MultiSimilarityMiner(epsilon=0.1)(x, small)
    for ours, theirs in (
        (MultiSimilarityLoss(), lambda: peer.MultiSimilarityLoss(2, 50, 0.5)(x, small, mined)),
        (MultiSimilarityLoss(mining=False), lambda: peer.MultiSimilarityLoss(2, 50, 0.5)(x, small)),
        (FastAPLoss(bins=10), lambda: peer.FastAPLoss(num_bins=10)(x, small)),
        (HistogramLoss(bins=20), lambda: peer.HistogramLoss(n_bins=20)(x, small)),
    ):
        if isinstance(ours, HistogramLoss) and labels is UNEVEN:
            continue  # the peer leaves out pairs of two images that are alone in their classes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the peer's own
            expected = theirs()
        value, gradient = value_and_gradient(ours, x, y)
        torch.testing.assert_close(value, expected.detach(), msg=lambda text, ours=ours: f"{ours}: {text}")
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, x)[0])


def test_unmined_multi_similarity_is_the_literal_definition() -> None:
    x, labels = batch(UNEVEN)
    s = reference.similarities(x.tolist(), x.tolist())
    loss = MultiSimilarityLoss(alpha=3, beta=20, base=1.0, mining=False)
    expected = reference.multi_similarity(s, labels.tolist(), 3, 20, 1.0, None)
    assert loss(x, labels).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), (x,))
