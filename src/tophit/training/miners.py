"""From the recipe's miner section to a function that mines."""

from collections.abc import Callable
from functools import partial

import torch

from tophit.mining import mine
from tophit.recipe.choices import Peer
from tophit.recipe.section import Section
from tophit.training.peer import build_peer

IndicesTuple = tuple[torch.Tensor, ...]


def build_miner(section: Section, normalize: bool = True) -> Callable[..., IndicesTuple] | None:
    """Return a function from embeddings (N, d) and labels (N,) to index tensors, or None if the section says none.

    ``normalize`` says whether distances are of unit vectors, as in the loss that will take the tuples.
    """
    if isinstance(section, Peer):
        return build_peer("miner", section, {})
    fields = section.model_dump()
    name = fields.pop("name")
    return None if name == "none" else partial(mine, strategy=name, normalize=normalize, **fields)
