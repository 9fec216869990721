"""Words in training and evaluation: what a head keeps of text search, and how well class names find their images."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tophit.data.manifest import ImageRow
from tophit.errors import UsageError
from tophit.losses.text_alignment import TextAlignedLoss
from tophit.models.embedder import Embedder
from tophit.models.text_tower import no_words
from tophit.recipe import Recipe
from tophit.training.sources import FeatureSource, Source

PROMPT = "a photo of a {}"
_AT = (1, 5, 10)
_BLOCK = 256  # texts that are compared with all images at a time


def check_words(recipe: Recipe) -> None:
    """Raise if a recipe keeps similarities with words where that is not possible, before any data are read."""
    if not recipe.words.weight:
        return
    if recipe.embedder.pooling != "joint":
        raise UsageError(
            "words.weight: similarities with words are kept in a text tower's space; set embedder.pooling to joint."
        )
    if recipe.embedder.trainable != "head":
        raise UsageError(
            "words.weight: similarities with words are kept for a head on a frozen image tower; set embedder.trainable "
            "to head, or words.weight to 0 and measure with tophit evaluate what text search loses."
        )


def words_note(recipe: Recipe, embedder: Embedder) -> str | None:
    """Return a sentence on what training may do to text search, if the model takes words."""
    if not embedder.takes_words or recipe.words.weight:
        return None
    keep = " words.weight keeps similarities with class names." if recipe.embedder.trainable == "head" else ""
    return (
        "This model takes words, and only its images are learned, so text search may become worse; tophit evaluate "
        f"measures it (text recall@k).{keep}"
    )


def with_words(recipe: Recipe, loss: nn.Module, embedder: Embedder, source: Source) -> nn.Module:
    """Return a loss that also keeps the similarities with class names, if the recipe says so."""
    if not recipe.words.weight:
        return loss
    if source.numbers.kind != "one":
        raise UsageError("words.weight: similarities with words are kept for images with one label each.")
    if not embedder.takes_words:
        raise no_words(embedder.architecture)
    assert isinstance(source, FeatureSource)
    texts = embedder.text.features(prompts(source.class_names, recipe.words.prompt)).clone().to(embedder.device)
    sums = torch.zeros_like(texts).index_add_(0, source.labels, functional.normalize(source.features, dim=1))
    means = sums / torch.bincount(source.labels, minlength=len(texts))[:, None]
    return TextAlignedLoss(loss, embedder.embed_features, means, texts, recipe.words.weight).to(embedder.device)


def prompts(names: Sequence[str], prompt: str = PROMPT) -> list[str]:
    """Return class names as sentences.

    >>> prompts(["red_mug"])
    ['a photo of a red mug']
    """
    return [prompt.format(name.replace("_", " ")) for name in names]


def text_metrics(
    embedder: Embedder, vectors: np.ndarray, rows: Sequence[ImageRow], prompt: str = PROMPT
) -> dict[str, float]:
    """Return how well class names find images: of all classes, the share with a right image among the first k.

    ``vectors`` (N, dim) are those of the rows. Empty for a model without a text tower, and for rows with several labels
    or none.
    """
    labels = np.array([row.label for row in rows])
    names = sorted({label for label in labels if label})
    if not embedder.takes_words or not names or any(row.kind != "one" for row in rows):
        return {}
    most = min(max(_AT), len(rows))
    first_right: list[int] = []
    for start in range(0, len(names), _BLOCK):
        some = names[start : start + _BLOCK]
        scores = embedder.encode_text(prompts(some, prompt)) @ vectors.T
        nearest = np.argsort(-scores, axis=1, kind="stable")[:, :most]
        right = labels[nearest] == np.array(some)[:, None]
        first_right += np.where(right.any(axis=1), right.argmax(axis=1), most).tolist()
    return {f"text recall@{k}": float(np.mean(np.array(first_right) < k)) for k in _AT if k <= most}
