"""From the recipe's method section to the method itself."""

from collections.abc import Callable

from torch import nn

from tophit.batches import RepresentativeBatchSampler
from tophit.errors import UsageError
from tophit.methods import Method, PlainMethod, ProjectionMethod
from tophit.models.embedder import Embedder
from tophit.recipe import Recipe
from tophit.recipe.methods import Projection
from tophit.training.losses import build_loss
from tophit.training.miners import build_miner
from tophit.training.optimizer import make_optimizer
from tophit.training.sources import Source

MethodMaker = Callable[[Recipe, Embedder, Source, nn.Module], Method]


def build_method(recipe: Recipe, embedder: Embedder, source: Source) -> Method:
    """Return the method that a recipe names, with its loss, miner and optimizers, for an embedder and its batches."""
    loss = build_loss(recipe.loss, source.classes, embedder.dim).to(embedder.device)
    return _MAKERS[recipe.method.name](recipe, embedder, source, loss)


def _plain(recipe: Recipe, embedder: Embedder, source: Source, loss: nn.Module) -> Method:
    miner = build_miner(recipe.miner, getattr(loss, "normalize", True))
    if miner is not None and hasattr(loss, "proxies"):
        raise UsageError(
            f"miner.name: the loss {recipe.loss.name} compares images with proxies, not with each other, so there is "
            "nothing to mine; write 'miner: none' or take another loss."
        )
    return PlainMethod(embed_for(loss, source), loss, make_optimizer(recipe, embedder, loss), miner)


def embed_for(loss: nn.Module, source: Source) -> Callable:
    """Return unit vectors for a loss that would normalise anyway, the head's raw output for one that would not."""
    return source.embed if getattr(loss, "normalize", False) else source.embed_raw


def _projection(recipe: Recipe, embedder: Embedder, source: Source, loss: nn.Module) -> Method:
    section, sampler = recipe.method, source.sampler
    if not isinstance(section, Projection) or not isinstance(sampler, RepresentativeBatchSampler):
        raise TypeError("the method projection needs its own section and sampler")
    if recipe.miner.name != "none":
        raise UsageError("miner.name: the method projection chooses its own exemplars; write 'miner: none'.")
    return ProjectionMethod(
        embed_for(loss, source),
        loss,
        make_optimizer(recipe, embedder, loss),
        sampler,
        section.proximal,
        section.proximal_in_first_cycle,
        section.near,
        section.far,
    )


_MAKERS: dict[str, MethodMaker] = {"plain": _plain, "projection": _projection}
