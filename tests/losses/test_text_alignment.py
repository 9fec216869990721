"""The term that keeps similarities with words, against its formula written out."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tophit.losses import TextAlignedLoss, TripletLoss


def unit(*shape: int) -> torch.Tensor:
    return functional.normalize(torch.randn(*shape), dim=-1)


def slow(
    embeddings: torch.Tensor, labels: torch.Tensor, images: torch.Tensor, texts: torch.Tensor, head: nn.Module
) -> float:
    total, count = 0.0, 0
    for x, y in zip(embeddings, labels.tolist(), strict=True):
        for c in sorted(set(labels.tolist())):
            t = head(texts[c]).detach()
            cosine = float(x @ t / (x.norm() * t.norm()))
            total += (cosine - float(images[y] @ texts[c])) ** 2
            count += 1
    return total / count


def test_the_term_is_its_formula_and_reaches_the_head() -> None:
    torch.manual_seed(0)
    head, embeddings = nn.Linear(5, 3), torch.randn(7, 3)
    labels = torch.tensor([4, 0, 4, 2, 0, 2, 2])  # unequal, in no order, and some classes are not there
    images, texts = unit(6, 5) * 0.9, unit(6, 5)
    plain = TripletLoss()

    def unit_head(x: torch.Tensor) -> torch.Tensor:
        return functional.normalize(head(x), dim=1)

    loss = TextAlignedLoss(plain, unit_head, images, texts, weight=3.0)
    expected = float(plain(embeddings, labels)) + 3 * slow(embeddings, labels, images, texts, head)
    value = loss(embeddings, labels)
    assert value.item() == pytest.approx(expected, abs=1e-5)
    assert list(loss.parameters()) == []  # the head's weights are the embedder's
    assert loss.state_dict() == {}
    value.backward()
    assert head.weight.grad is not None
    assert head.weight.grad.abs().sum() > 0


def test_nothing_is_added_where_nothing_changed() -> None:
    """Without a head, and with images at the mean of their class, the similarities are those of before."""
    torch.manual_seed(1)
    images, texts = unit(3, 4), unit(3, 4)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    loss = TextAlignedLoss(TripletLoss(), lambda x: x, images, texts, weight=10.0)
    assert loss(images[labels], labels).item() == pytest.approx(TripletLoss()(images[labels], labels).item(), abs=1e-6)
