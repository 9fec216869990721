"""A run logs how many pairs or triplets it has used so far, for curves against their number."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tophit import losses
from tophit.errors import Interrupted
from tophit.methods import BatchMemory, GenerationMethod, GenerationSettings, PlainMethod, TrainingBatch
from tophit.mining import mine
from tophit.progress import View
from tophit.recipe import make_recipe
from tophit.training import resume, train

LABELS = torch.tensor([0, 0, 1, 1, 1, 2])  # 4 positive pairs and 11 negative ones; 8 + 18 triplets
TRIPLETS = 2 * 1 * 4 + 3 * 2 * 3


def embeddings(seed: int = 0) -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (losses.ContrastiveLoss(), 15),
        (losses.MarginLoss(), 15),
        (losses.LiftedStructureLoss(), 15),
        (losses.TripletLoss(), TRIPLETS),
        (losses.NPairLoss(), 2),  # two pairs of two classes, each with the other's positive
        (losses.MultiSimilarityLoss(mining=False), 30),  # each pair from both of its ends
        (losses.PNPLoss(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_loss_counts_what_it_compares(loss: torch.nn.Module, expected: int | None) -> None:
    loss(embeddings(), LABELS)
    assert loss.used == expected


def test_chosen_ones_count_once() -> None:
    triplets = (torch.tensor([0, 2]), torch.tensor([1, 3]), torch.tensor([2, 0]))
    pairs = (torch.tensor([0, 0, 2, 2]), torch.tensor([1, 2, 3, 5]))
    for loss, given, expected in (
        (losses.TripletLoss(), {"triplets": triplets}, 2),
        (losses.ContrastiveLoss(), {"triplets": triplets}, 4),
        (losses.LiftedStructureLoss(), {"pairs": pairs}, 4),
    ):
        loss(embeddings(), LABELS, **given)
        assert loss.used == expected


def test_the_topk_loss_counts_its_misplaced_pairs() -> None:
    loss = losses.TopKPrecisionLoss(k=2)
    found = loss.misplaced(embeddings(), LABELS)
    loss(embeddings(), LABELS)
    assert loss.used == sum(len(each) for each in found.positives) > 0


def plain(loss: torch.nn.Module, **options: Any) -> PlainMethod:
    torch.manual_seed(0)
    embed = torch.nn.Linear(4, 4)
    return PlainMethod(embed, loss, torch.optim.SGD(embed.parameters(), 0.0), **options)


def batch() -> TrainingBatch:
    return TrainingBatch(embeddings(), LABELS, torch.arange(6))


def test_a_step_counts_a_miners_choice_for_any_loss() -> None:
    from pytorch_metric_learning import losses as peer

    def miner(x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return mine(x, labels, "semi-hard", margin=5.0)

    for loss in (losses.TripletLoss(), peer.TripletMarginLoss()):
        method = plain(loss, miner=miner)
        expected = len(miner(method.embed(embeddings()).detach(), LABELS)[0])
        assert method.step(batch())["tuples"] == expected > 0
    assert "tuples" not in plain(losses.PNPLoss()).step(batch())


def test_a_memory_adds_the_pairs_with_earlier_batches() -> None:
    method = plain(losses.ContrastiveLoss(), memory=BatchMemory(12))
    assert [method.step(batch())["tuples"] for _ in range(3)] == [15, 15 + 36, 15 + 72]


def test_generation_counts_original_and_generated_triplets() -> None:
    torch.manual_seed(0)
    embed = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(embed.parameters(), 1e-3)
    settings = GenerationSettings(pretrain_epochs=1)
    method = GenerationMethod(embed, losses.TripletLoss(), optimizer, 3, 4, settings=settings)
    drawn = 5  # anchors that have a positive
    assert method.step(batch())["tuples"] == drawn
    method.begin_epoch(1)
    assert method.step(batch())["tuples"] == 2 * drawn


class Stops(View):
    """Stops the run at a step, as Ctrl-C does."""

    def __init__(self, at: int) -> None:
        self.at = at

    def evaluated(self, *values: Any) -> None:
        if values[0] == self.at:
            raise KeyboardInterrupt


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", ["plain", "projection", "hdml"])
def test_the_log_has_the_sum_since_the_run_began_even_if_it_was_stopped(
    method: str, pictures: Path, tmp_path: Path
) -> None:
    fields = {
        "data": {"manifest": str(pictures), "validation_share": 0.25},
        "embedder": {"backbone": "small", "weights": "random", "dim": 8, "size": 32, "trainable": "head"},
        "loss": "contrastive" if method != "hdml" else "triplet",
        "method": method,
        "batches": {"classes": 3, "per_class": 3},
        "schedule": {"epochs": 4},
    }
    train(make_recipe(fields), tmp_path / "whole")
    counts = [line["tuples"] for line in lines(tmp_path / "whole") if "loss" in line]
    assert counts == sorted(counts)
    assert counts[0] > 0
    if method == "plain":  # two training classes are left, so batches have 6 images
        assert counts == [15.0 * (step + 1) for step in range(len(counts))]
    with pytest.raises(Interrupted):
        train(make_recipe(fields), tmp_path / "stopped", Stops(3))
    resume(tmp_path / "stopped")
    assert [line["tuples"] for line in lines(tmp_path / "stopped") if "loss" in line] == counts
