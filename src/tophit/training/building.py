"""Build what a recipe's sections name: embedder, loss, miner, sampler and method."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from tophit.batches import BatchSampler
from tophit.data.feature_files import SUFFIX, read_feature_file
from tophit.errors import UsageError
from tophit.losses import PrefixLoss, ThresholdConsistentLoss
from tophit.losses.loss import Ability, can
from tophit.losses.prefixes import prefix_lengths
from tophit.methods import BatchMemory, Method, RunParts, Stepper
from tophit.methods.method import Miner
from tophit.models.embedder import Embedder, build_embedder
from tophit.models.given_features import LIBRARY
from tophit.models.stochastic_depth import set_stochastic_depth
from tophit.recipe import Recipe, Section, make_recipe
from tophit.recipe.choosing import PEER, Peer
from tophit.registry import did_you_mean, entries, find
from tophit.training.class_numbers import ClassNumbers
from tophit.training.devices import choose_device
from tophit.training.optimizer import make_optimizer
from tophit.training.sources import Source
from tophit.training.suited_batches import makes_batches
from tophit.training.words import check_words, with_words

_PEER_MODULES = {"loss": "losses", "miner": "miners"}


def make_embedder(recipe: Recipe, head: bool = True, device: torch.device | None = None) -> Embedder:
    """Build the recipe's embedder as it is before training, with an untrained head or without a head."""
    fields = recipe.embedder
    dim = fields.dim if head else None
    embedder = build_embedder(
        fields.backbone,
        fields.weights,
        fields.pooling,
        fields.p,
        dim,
        fields.size,
        fields.crop,
        fields.squash,
        learn_p=fields.learn_p,
        levels=fields.levels,
        layer_norm=fields.layer_norm and head,
    )
    if fields.stochastic_depth and not set_stochastic_depth(embedder.backbone, fields.stochastic_depth):
        raise UsageError(
            f"embedder.stochastic_depth: '{fields.backbone}' has no residual blocks that can be left out; set it to 0, "
            "or use efficientnet-lite0 to lite2 or resnet50."
        )
    return embedder.to(device or choose_device(recipe.device))


def untrained_tower(recipe: Recipe | None, embedder: Embedder) -> Callable[[], Embedder] | None:
    """Return what makes the image tower of a run as it was before training; None where that has no text tower."""
    if recipe is None or not embedder.takes_words:
        return None
    return lambda: make_embedder(recipe, head=False)


def with_given_features(recipe: Recipe) -> Recipe:
    """Return the recipe with the backbone ``features/LENGTH`` if its data are a feature file, else as it is."""
    if not recipe.data.manifest.endswith(SUFFIX):
        return recipe
    if recipe.embedder.trainable != "head":
        raise UsageError(
            f"embedder.trainable: {recipe.data.manifest} holds features, not images, so only a head can be trained on "
            "them; set it to 'head'."
        )
    channels = read_feature_file(recipe.data.manifest).channels
    embedder = recipe.embedder.model_copy(update={"backbone": f"{LIBRARY}{channels}", "pooling": "average"})
    return recipe.model_copy(update={"embedder": embedder})


def build_loss(section: Section, classes: int, dim: int) -> nn.Module:
    """Return the loss that a recipe's section names, for ``classes`` classes and embeddings of length ``dim``.

    A section's fields are the loss's arguments, under the same names; with ``prefixes`` it is the mean over them.
    """
    prefixes = getattr(section, "prefixes", ())
    if not prefixes:
        return _loss_of_length(section, classes, dim)
    return PrefixLoss(partial(_loss_of_length, section, classes), prefix_lengths(prefixes, dim))


def _loss_of_length(section: Section, classes: int, dim: int) -> nn.Module:
    given = {"num_classes": classes, "embedding_dim": dim, "embedding_size": dim}
    return build_peer("loss", section, given) if isinstance(section, Peer) else _build("loss", section, given)


def build_miner(section: Section, normalize: bool = True) -> Miner | None:
    """Return a function from embeddings (N, d) and labels (N,) to index tensors, or None if the section says none.

    ``normalize`` says whether distances are between unit vectors, as in the loss that will use the tuples.
    """
    if isinstance(section, Peer):
        return build_peer("miner", section, {})
    fields = section.model_dump()
    name = fields.pop("name")
    if name == "none":
        return None
    miner: Any = find("miner", name).load()
    if inspect.isclass(miner):
        return cast("Miner", miner(**fields))
    takes = inspect.signature(miner, follow_wrapped=False).parameters
    made = partial(miner, **({"normalize": normalize} if "normalize" in takes else {}), **fields)
    return cast("Miner", made)


def make_sampler(recipe: Recipe, numbers: ClassNumbers) -> BatchSampler:
    """Return the sampler that the recipe's method provides, or else the sampler the recipe names.

    Of images with several labels, ``balanced`` batches are balanced over labels.
    """
    batches, fields, labels = recipe.batches, recipe.method.model_dump(), numbers.classes.tolist()
    method = find("method", fields.pop("name")).load()
    if makes_batches(method):
        if batches.sampler != "balanced" or batches.repeat_small_classes:
            raise UsageError(
                f"batches: the method {recipe.method.name} makes batches of classes x per_class images without "
                "repeats; set batches.sampler to balanced and leave out batches.repeat_small_classes."
            )
        return method.make_sampler(labels, batches.classes, batches.per_class, recipe.seed, **fields)
    given = {"labels": labels, "images": len(labels), "seed": recipe.seed, "paths": numbers.paths}
    if numbers.kind == "several":
        given |= {"sets": numbers.sets}
        if batches.sampler == "balanced":
            batches = batches.model_copy(update={"sampler": "balanced-labels"})
    return _build("sampler", batches, given, key="sampler")


def build_method(recipe: Recipe, embedder: Embedder, source: Source, stepper: Stepper) -> Method:
    """Return the method that a recipe names, with its loss, miner and optimizers, for an embedder and its batches."""
    loss = _whole_loss(recipe, recipe.loss, source.classes, embedder)
    loss = with_words(recipe, loss, embedder, source, stepper, lambda: make_embedder(recipe, False, embedder.device))
    fields = recipe.method.model_dump()
    kind: type[Method] = find("method", fields.pop("name")).load()
    if recipe.miner.name != "none" and any(
        hasattr(each, "proxies") for each in loss.modules()
    ):  # losses of other libraries use this name too
        raise _nothing_to_mine(recipe.loss.name)
    parts = RunParts(
        embed=embed_for(loss, source),
        embed_unit=source.embed,
        features=source.pooled,
        head=embedder.embed_features,
        loss=loss,
        make_optimizer=partial(make_optimizer, recipe, embedder),
        make_loss=lambda name: _another_loss(recipe, name, source.classes, embedder),
        sampler=source.sampler,
        miner=build_miner(recipe.miner, getattr(loss, "normalize", True)),
        memory=_memory(recipe),
        classes=source.classes,
        dim=embedder.dim,
        channels=embedder.channels,
        device=embedder.device,
        stepper=stepper,
    )
    return kind.for_run(parts, **fields)


def embed_for(loss: nn.Module, source: Source) -> Callable:
    """Return the function that embeds for a loss: to unit vectors if it normalises, else to the head's raw output."""
    return source.embed if getattr(loss, "normalize", False) else source.embed_raw


def loss_class(recipe: Recipe) -> type[nn.Module]:
    """Return the class of a recipe's loss, which may be pytorch-metric-learning's."""
    name = recipe.loss.name
    return _peer_class("loss", name) if isinstance(recipe.loss, Peer) else find("loss", name).load()


def check_recipe(recipe: Recipe) -> None:
    """Raise if the loss, miner, memory, batches and method can't be combined, before any data are read."""
    _check_what_learns(recipe)
    check_words(recipe)
    method: type[Method] = find("method", recipe.method.name).load()
    name, loss = recipe.loss.name, loss_class(recipe)
    if recipe.memory.size and not method.takes_memory:
        raise UsageError(f"memory.size: the method {recipe.method.name} has no memory of batches; leave it out.")
    if recipe.memory.size and not can(loss, "takes_memory"):
        raise UsageError(
            f"memory.size: the loss {name} can't compare images with those of other batches; use one of "
            f"{', '.join(losses_with('takes_memory'))}, or leave memory out."
        )
    alone = recipe.batches.sampler != "random" and recipe.batches.per_class == 1
    if alone and getattr(loss, "compares_images", False):
        raise UsageError(
            f"batches.per_class: the loss {name} compares images of one class, but a batch would hold one per class; "
            "set it to 2 or more."
        )
    if recipe.miner.name != "none" and not method.takes_miner:
        raise UsageError(f"miner.name: the method {recipe.method.name} chooses its own exemplars; set 'miner: none'.")
    if recipe.miner.name != "none" and not getattr(loss, "compares_images", True):
        raise _nothing_to_mine(name)
    if method.needs_triplets and not can(loss, "takes_triplets"):
        raise UsageError(
            f"loss.name: the method {recipe.method.name} needs a loss that takes triplets, and {name} does not; use "
            f"one of {', '.join(losses_with('takes_triplets'))}."
        )


def _check_what_learns(recipe: Recipe) -> None:
    trainable, sizes = recipe.embedder.trainable, recipe.schedule.sizes
    if recipe.embedder.stochastic_depth and trainable == "head":
        raise UsageError(
            "embedder.stochastic_depth: with trainable: head the backbone's features are computed once, so no block "
            "can be left out; set it to 0, or trainable to last or all."
        )
    if sizes and trainable != "all":
        raise UsageError(
            f"schedule.sizes: with trainable: {trainable} the backbone's {_KEPT[trainable]} are computed once, at one "
            "size; leave sizes out, or set trainable to all."
        )
    if len(sizes) > recipe.schedule.epochs:
        raise UsageError(
            f"schedule.sizes: {len(sizes)} sizes need at least as many epochs, and schedule.epochs is "
            f"{recipe.schedule.epochs}."
        )


_KEPT = {"head": "features", "last": "activations"}


def _nothing_to_mine(loss: str) -> UsageError:
    return UsageError(
        f"miner.name: the loss {loss} compares images with proxies, not with each other, so there is nothing to mine; "
        "set 'miner: none' or use another loss."
    )


def losses_with(ability: Ability) -> list[str]:
    """Return the names of the losses that have an ability."""
    return [entry.name for entry in entries("loss") if getattr(entry.load(), ability, False)]


def _memory(recipe: Recipe) -> BatchMemory | None:
    section = recipe.memory
    return BatchMemory(section.size, section.start, section.weight) if section.size else None


def _another_loss(recipe: Recipe, name: str, classes: int, embedder: Embedder) -> nn.Module:
    section = make_recipe({**recipe.model_dump(), "loss": name}).loss
    return _whole_loss(recipe, section, classes, embedder)


def _whole_loss(recipe: Recipe, section: Section, classes: int, embedder: Embedder) -> nn.Module:
    """Return a loss of the recipe, with the threshold-consistent margin if the recipe has it."""
    loss, term = build_loss(section, classes, embedder.dim), recipe.consistency
    if term.weight:
        loss = ThresholdConsistentLoss(loss, term.weight, term.high, term.low)
    return loss.to(embedder.device)


def _build(kind: str, section: Section, given: Mapping[str, Any], key: str = "name") -> Any:
    """Make what a section names: its options are the arguments, plus those of ``given`` that the signature has."""
    fields = section.model_dump()
    entry = find(kind, fields[key])
    make = entry.load()
    takes = inspect.signature(make).parameters
    known = {name: value for name, value in given.items() if name in takes}
    return make(**known, **{name: fields[name] for name in entry.options})


def build_peer(part: str, section: Peer, known: Mapping[str, Any]) -> nn.Module:
    """Return the loss or miner that a recipe's section ``part`` names, as ``pml/NAME`` with its arguments.

    ``known`` are arguments that follow from the run, used if the class takes them and the recipe does not set them.
    """
    kind = _peer_class(part, section.name)
    takes = inspect.signature(kind).parameters
    given = {name: known[name] for name in takes if name in known}
    try:
        return kind(**{**given, **section.arguments})
    except Exception as error:  # its constructors raise various types for a wrong argument
        own = [name for name, parameter in takes.items() if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        listed = ", ".join(own) or "no arguments"
        raise UsageError(f"{part}: {section.name} rejected its arguments: {error}. It takes: {listed}.") from error


def _peer_class(part: str, name: str) -> type[nn.Module]:
    """Return the class of pytorch-metric-learning that ``pml/NAME`` stands for; the library is imported only here."""
    try:
        module = importlib.import_module(f"pytorch_metric_learning.{_PEER_MODULES[part]}")
    except ImportError as error:
        raise UsageError(
            f"{part}.name: {name} needs pytorch-metric-learning: pip install pytorch-metric-learning."
        ) from error
    classes: dict[str, Any] = {f"{PEER}{each}": value for each, value in vars(module).items() if inspect.isclass(value)}
    if name not in classes:
        known = ", ".join(sorted(each.removeprefix(PEER) for each in classes))
        hint = did_you_mean(name, list(classes)) or f" Choices: {known}."
        raise UsageError(f"{part}.name: pytorch-metric-learning has no {part} '{name.removeprefix(PEER)}'.{hint}")
    return classes[name]
