"""From the recipe's method section to the method itself."""

from collections.abc import Callable

from torch import nn

from tophit.batches import RepresentativeBatchSampler
from tophit.errors import UsageError
from tophit.losses.proxy_loss import ProxyLoss
from tophit.methods import BatchMemory, GenerationMethod, Method, PlainMethod, ProjectionMethod, Stepper
from tophit.methods.thsg import GenerationSettings
from tophit.models.embedder import Embedder
from tophit.recipe import Recipe, make_recipe
from tophit.recipe.choices import Peer
from tophit.recipe.methods import Generation, Projection
from tophit.recipe.pair_losses import Angular, Contrastive, LiftedStructure, Margin, NPair, Triplet
from tophit.training.losses import build_loss
from tophit.training.miners import build_miner
from tophit.training.optimizer import make_optimizer
from tophit.training.sources import Source

MethodMaker = Callable[[Recipe, Embedder, Source, nn.Module, Stepper], Method]
# Losses that need no more than labels to compare a batch with a memory.
_TAKE_MEMORY = ("topk-precision", "pnp", "smooth-ap", "contrastive", "triplet", "margin", "lifted-structure")


def build_method(recipe: Recipe, embedder: Embedder, source: Source, stepper: Stepper) -> Method:
    """Return the method that a recipe names, with its loss, miner and optimizers, for an embedder and its batches."""
    if recipe.memory.size and recipe.method.name != "plain":
        raise UsageError(f"memory.size: the method {recipe.method.name} has no memory of batches; leave it out.")
    loss = build_loss(recipe.loss, source.classes, embedder.dim).to(embedder.device)
    alone = recipe.batches.sampler == "balanced" and recipe.batches.per_class == 1
    if alone and not isinstance(loss, ProxyLoss) and not isinstance(recipe.loss, Peer):
        raise UsageError(
            f"batches.per_class: the loss {recipe.loss.name} compares images of one class, and a batch would hold one "
            "of each; set it to 2 or more."
        )
    return _MAKERS[recipe.method.name](recipe, embedder, source, loss, stepper)


def _plain(recipe: Recipe, embedder: Embedder, source: Source, loss: nn.Module, stepper: Stepper) -> Method:
    miner = build_miner(recipe.miner, getattr(loss, "normalize", True))
    if miner is not None and hasattr(loss, "proxies"):
        raise UsageError(
            f"miner.name: the loss {recipe.loss.name} compares images with proxies, not with each other, so there is "
            "nothing to mine; write 'miner: none' or take another loss."
        )
    optimizer = make_optimizer(recipe, embedder, loss)
    return PlainMethod(embed_for(loss, source), loss, optimizer, miner, _memory(recipe), stepper)


def _memory(recipe: Recipe) -> BatchMemory | None:
    section, name = recipe.memory, recipe.loss.name
    if not section.size:
        return None
    if name not in _TAKE_MEMORY and name != "pml/NAME":
        raise UsageError(
            f"memory.size: the loss {name} compares no image with those of other batches; take one of "
            f"{', '.join(_TAKE_MEMORY)}, or leave memory out."
        )
    return BatchMemory(section.size, section.start, section.weight)


def embed_for(loss: nn.Module, source: Source) -> Callable:
    """Return unit vectors for a loss that would normalise anyway, the head's raw output for one that would not."""
    return source.embed if getattr(loss, "normalize", False) else source.embed_raw


def _projection(recipe: Recipe, embedder: Embedder, source: Source, loss: nn.Module, stepper: Stepper) -> Method:
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
        stepper,
    )


def _generation(recipe: Recipe, embedder: Embedder, source: Source, loss: nn.Module, stepper: Stepper) -> Method:
    section = recipe.method
    if not isinstance(section, Generation):
        raise TypeError("the method generation needs its own section")
    if not isinstance(recipe.loss, _TAKES_TRIPLETS):
        raise UsageError(
            f"loss.name: the generation method feeds triplets to the loss, and {recipe.loss.name} takes none; write "
            "'loss: triplet', or another pair loss."
        )
    hard_loss = None
    if section.hard_loss != "same":
        other = make_recipe({**recipe.model_dump(), "loss": section.hard_loss}).loss
        hard_loss = build_loss(other, source.classes, embedder.dim).to(embedder.device)
    learned = nn.ModuleList([loss, *([] if hard_loss is None else [hard_loss])])
    settings = GenerationSettings(**section.model_dump(exclude={"name", "hard_loss"}))
    return GenerationMethod(
        source.embed,
        loss,
        make_optimizer(recipe, embedder, learned),
        source.classes,
        embedder.dim,
        build_miner(recipe.miner),
        hard_loss,
        settings,
        embedder.device,
        stepper,
    )


_TAKES_TRIPLETS = (Contrastive, Triplet, Margin, LiftedStructure, NPair, Angular, Peer)
_MAKERS: dict[str, MethodMaker] = {"plain": _plain, "projection": _projection, "generation": _generation}
