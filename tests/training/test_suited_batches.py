"""Batches that suit the loss, and batches larger than the data."""

from pathlib import Path

import pytest

from tophit.progress import View
from tophit.recipe import read_recipe
from tophit.recipe.reading import overridden
from tophit.training import train
from tophit.training.suited_batches import size_note, suit_batches

SMALL = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=1"]


@pytest.mark.parametrize(
    ("overrides", "sampler", "reason"),
    [
        (["loss=pnp"], "balanced", "the loss pnp compares images of one class"),
        (["loss.name=topk"], "balanced", "the loss topk-precision compares"),
        (["method=profs"], "balanced", "the method projection makes batches"),
        (["loss=pnp", "batches.sampler=random"], "random", None),  # told otherwise
        (["loss=mpa"], "random", None),  # compares images with proxies
        (["schedule.epochs=3"], "random", None),
    ],
)
def test_a_loss_that_needs_balanced_batches_gets_them_unless_told_otherwise(
    overrides: list[str], sampler: str, reason: str | None
) -> None:
    recipe, note = suit_batches(read_recipe("head", overrides, "x"), overridden(overrides))
    assert recipe.batches.sampler == sampler
    assert (note is None) == (reason is None)
    assert reason is None or (reason in str(note) and "32 classes x 4 images" in str(note))


class Notes(View):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        (["batches.size=100000"], "A batch is all 24 training images: batches.size, 100,000, is more than there are."),
        (
            ["batches.sampler=balanced", "batches.classes=64", "batches.per_class=50"],
            "A batch has at most 4 classes x 6 images, not 64 x 50: there are 4 training classes, the largest with "
            "6 images.",
        ),
    ],
)
def test_batches_larger_than_the_data_are_told(pictures: Path, tmp_path: Path, overrides: list[str], note: str) -> None:
    view = Notes()
    train(read_recipe("head", [*SMALL, *overrides], str(pictures)), tmp_path / "run", view)
    assert note in view.said


def test_batches_that_fit_are_not_worth_a_word() -> None:
    labels = [number // 6 for number in range(24)]
    for overrides in (["batches.size=24"], ["batches.sampler=balanced", "batches.classes=4", "batches.per_class=6"]):
        assert size_note(read_recipe("head", overrides, "x"), labels) is None


def test_of_four_training_classes_none_is_held_out_unless_asked_for(pictures: Path, tmp_path: Path) -> None:
    view = Notes()
    train(read_recipe("head", SMALL, str(pictures)), tmp_path / "few", view)
    assert any(
        "4 training classes are too few to hold 10% of them out: the last epoch will be kept" in s for s in view.said
    )
    train(read_recipe("head", [*SMALL, "data.validation_share=0.5"], str(pictures)), tmp_path / "asked", view)
    assert any("2 classes (12 images) are held out of training" in said for said in view.said)
