"""Text alignment: a model that is learned on images keeps the similarities of images with words."""

from collections.abc import Callable

import torch
from torch import nn

from tophit.losses.loss_with_term import LossWithTerm


class TextAlignedLoss(LossWithTerm):
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
    >>> units = torch.eye(2, 3)
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
        super().__init__(loss, weight)
        self.head = (head,)  # in a tuple: its weights belong to the embedder
        self.images: torch.Tensor
        self.texts: torch.Tensor
        self.register_buffer("images", images, persistent=False)
        self.register_buffer("texts", texts, persistent=False)

    def term(self, units: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean square of what changed in the similarities of images (N, d) with the batch's names."""
        named = labels.unique()
        before = self.images[labels] @ self.texts[named].T
        return (units @ self.head[0](self.texts[named]).T - before).square().mean()
