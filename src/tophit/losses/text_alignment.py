"""Text alignment: a model that is learned on images keeps the similarities of images with words."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class TextAlignedLoss(nn.Module):
    """A loss plus what training changes in the similarities of images with the names of their classes.

    loss + weight * mean over images i and classes c of the batch of (cos(x_i, h(t_c)) - m(y_i) . t_c)^2

    t_c is the unit vector of the name of class c in the space that images and texts share, h the head that is learned,
    x_i an embedding of the batch, and m(y) the mean of the unit features of class y before training: m(y) . t_c is the
    mean cosine that the images of a class had with a name before training. So names find images as they did, while
    the loss may move images of a class together.

    Shapes: ``images`` (C, channels) and ``texts`` (C, channels), in the order of the class numbers; ``head`` maps
    (n, channels) to unit vectors (n, d); embeddings (N, d), labels (N,), and whatever else the loss takes. A memory is
    compared by the loss alone.

    >>> from tophit.losses import TripletLoss
    >>> units = functional.normalize(torch.randn(2, 3), dim=1)
    >>> loss = TextAlignedLoss(TripletLoss(), lambda x: x, images=units, texts=units, weight=2.0)
    >>> loss(torch.randn(4, 3), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        loss: nn.Module,
        head: Callable[[torch.Tensor], torch.Tensor],
        images: torch.Tensor,
        texts: torch.Tensor,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.loss = loss
        self.head = (head,)  # in a tuple: its weights belong to the embedder
        self.images: torch.Tensor
        self.texts: torch.Tensor
        self.register_buffer("images", images, persistent=False)
        self.register_buffer("texts", texts, persistent=False)
        self.weight = weight
        self.normalize = getattr(loss, "normalize", False)
        self.restriction = getattr(loss, "restriction", None)

    @property
    def used(self) -> int | None:
        """How many pairs or triplets the loss compared in the last call."""
        return getattr(self.loss, "used", None)

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor, *chosen: Any, **others: Any) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,), and the term."""
        value = self.loss(embeddings, labels, *chosen, **others)
        if "ref_emb" in others:
            return value
        with torch.autocast(embeddings.device.type, enabled=False):
            named = labels.unique()
            now = functional.normalize(embeddings.float(), dim=1) @ self.head[0](self.texts[named]).T
            before = self.images[labels] @ self.texts[named].T
            return value + self.weight * (now - before).square().mean()
