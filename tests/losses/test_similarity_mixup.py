"""SiMix: virtual images between two of a class, as queries and candidates."""

import pytest
import torch
from tests.reference import ranking as reference

from tophit.losses import RecallAtKLoss

LABELS = [0, 0, 0, 1, 1, 2]
PAIRS = [(0, 1), (0, 2), (1, 2), (3, 4)]


def embeddings() -> torch.Tensor:
    x = torch.randn(len(LABELS), 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=1)


def test_equals_a_batch_in_which_the_virtual_images_are_written_out() -> None:
    x, loss = embeddings(), RecallAtKLoss(k=(1, 3), temperature=0.1, mixup=True)
    torch.manual_seed(4)
    found = loss(x, torch.tensor(LABELS))
    torch.manual_seed(4)
    shares = torch.rand(len(PAIRS), 1, dtype=x.dtype)
    virtual = [(a * x[i] + (1 - a) * x[j]).tolist() for a, (i, j) in zip(shares, PAIRS, strict=True)]
    rows = x.tolist() + virtual
    labels = LABELS + [LABELS[i] for i, _ in PAIRS]
    s = [[sum(p * q for p, q in zip(a, b, strict=True)) for b in rows] for a in rows]
    expected = reference.recall_at_k(s, labels, (1, 3), 0.1, 1.0)
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_gradients_flow_through_the_virtual_images() -> None:
    x = embeddings().requires_grad_()
    loss, labels = RecallAtKLoss(k=(1, 3), temperature=0.1, mixup=True, normalize=False), torch.tensor(LABELS)

    def value(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(4)
        return loss(x, labels)

    assert torch.autograd.gradcheck(value, (x,))


def test_a_memory_is_compared_as_it_is() -> None:
    x, labels = embeddings(), torch.tensor(LABELS)
    memory, theirs = embeddings().flip(0), labels.flip(0)
    plain, mixed = RecallAtKLoss(), RecallAtKLoss(mixup=True)
    assert mixed(x, labels, ref_emb=memory, ref_labels=theirs) == plain(x, labels, ref_emb=memory, ref_labels=theirs)
