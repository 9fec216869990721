"""Words in training: what a head keeps of the similarities of images with class names."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from tophit.errors import UsageError
from tophit.losses.text_alignment import TextAlignedLoss
from tophit.methods import Stepper
from tophit.models.embedder import Embedder
from tophit.models.text_facts import no_words
from tophit.recipe import Recipe
from tophit.training.sources import FeatureSource, Source, shared_features
from tophit.training.text_recall import prompts


def check_words(recipe: Recipe) -> None:
    """Raise if a recipe keeps similarities with words where that is not possible, before any data are read."""
    if not recipe.words.weight:
        return
    if recipe.embedder.pooling != "joint":
        raise UsageError(
            "words.weight: similarities with words are kept in a text tower's space; set embedder.pooling to joint."
        )


def words_note(recipe: Recipe, embedder: Embedder) -> str | None:
    """Return a sentence on what training may do to text search, if the model takes words."""
    if not embedder.takes_words or recipe.words.weight:
        return None
    return (
        "This model takes words, and only its images are learned, so text search may become worse; tophit evaluate "
        "measures it (text recall@k). words.weight keeps similarities with class names."
    )


def with_words(
    recipe: Recipe,
    loss: nn.Module,
    embedder: Embedder,
    source: Source,
    stepper: Stepper,
    untrained: Callable[[], Embedder],
) -> nn.Module:
    """Return a loss that also keeps the similarities with class names, if the recipe says so.

    ``untrained`` makes the image tower as it is before training.
    """
    if not recipe.words.weight:
        return loss
    if source.numbers.kind != "one":
        raise UsageError("words.weight: similarities with words are kept for images with one label each.")
    if not embedder.takes_words:
        raise no_words(embedder.architecture)
    texts = embedder.text.features(prompts(source.class_names, recipe.words.prompt)).clone().to(embedder.device)
    labels = source.labels.to(embedder.device)
    if isinstance(source, FeatureSource):
        features = source.features
    else:  # the tower learns, so what it sees now is looked at once, before it changes
        found = shared_features(stepper, untrained(), source.images)
        features, labels = torch.from_numpy(found.values).to(embedder.device), labels[found.rows]
    sums = torch.zeros_like(texts).index_add_(0, labels, functional.normalize(features, dim=1))
    means = sums / torch.bincount(labels, minlength=len(texts)).clamp(min=1)[:, None]
    return TextAlignedLoss(loss, embedder.embed_features, means, texts, recipe.words.weight).to(embedder.device)
