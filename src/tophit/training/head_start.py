"""Where a head begins: at the principal components of the training features, so that nothing is lost before step 1.

A random projection to fewer dimensions loses some points of recall that training must first win back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import nn

from tophit.data.manifest import Manifest
from tophit.models.embedder import Embedder

Kind = Literal["plain", "centred", "whitened"]
KINDS: tuple[Kind, ...] = ("plain", "centred", "whitened")
MOST_IMAGES = 2048  # whose features give the components, where training does not need the features of all images
_MOST_VECTORS = 20_000


@dataclass(frozen=True)
class HeadStart:
    """A linear head: ``weight`` (dim, channels) and ``bias`` (dim,), and how many rows are components."""

    kind: Kind
    weight: np.ndarray
    bias: np.ndarray
    components: int

    def sentence(self, dim: int) -> str:
        """Say where the head begins."""
        more = "" if self.components == dim else f"; the other {dim - self.components} dimensions begin at 0"
        kind = {"plain": "", "centred": ", centred", "whitened": ", centred and whitened"}[self.kind]
        return f"The head begins at {self.components} principal components of the training features{kind}{more}."


def principal_head(features: np.ndarray, dim: int, kind: Kind = "plain") -> HeadStart:
    """Return the linear map to the first ``dim`` principal components of features (N, channels).

    ``plain`` takes the eigenvectors of the second moments and no bias, which keeps cosines best. ``centred`` takes
    those of the covariance, and subtracts the mean. ``whitened`` also divides each component by sqrt(v + m), with its
    variance v and the mean variance m of all components, so that directions of little variance do not become noise.

    Directions that the features do not vary in complete the basis, since images of other classes may vary in them. If
    ``dim`` exceeds the channels, the remaining rows are 0; they learn like the others. The matrix has the norm that
    torch's random start has on average, so that learning rates mean the same for both.
    """
    x = np.asarray(features, np.float64)
    if len(x) > _MOST_VECTORS:
        x = x[np.linspace(0, len(x) - 1, _MOST_VECTORS).astype(int)]
    channels = x.shape[1]
    mean = x.mean(axis=0) if kind != "plain" else np.zeros(channels)
    centred = x - mean
    variances, vectors = np.linalg.eigh(centred.T @ centred / len(x))
    found = min(dim, channels)
    rows = vectors.T[::-1][:found]
    rows = (
        rows * np.sign(rows[np.arange(found), np.abs(rows).argmax(axis=1)])[:, None]
    )  # a sign of its own is arbitrary
    if kind == "whitened":
        kept = np.clip(variances[::-1], 0, None)
        rows = rows / np.sqrt(kept[:found] + max(kept.mean(), np.finfo(np.float64).tiny))[:, None]
    rows = rows * np.sqrt(dim / 3) / np.linalg.norm(rows)  # entries of nn.Linear have the variance 1 / (3 channels)
    weight = np.zeros((dim, channels))
    weight[:found] = rows
    return HeadStart(kind, weight.astype(np.float32), (-weight @ mean).astype(np.float32), found)


def begin_head(
    embedder: Embedder, features: np.ndarray, value_of: Callable[[], float] | None = None
) -> HeadStart | None:
    """Let an embedder's head begin at principal components of features (N, channels); return None if it has no head.

    ``value_of`` measures the embedder, on validation classes, and decides whether to centre and whiten; without it the
    components are plain, which keeps the backbone's quality.
    """
    linear = linear_of(embedder.head)
    if linear is None or not len(features):
        return None
    inputs = np.asarray(features, np.float32)
    for layer in embedder.head.modules():
        if isinstance(layer, nn.LayerNorm):  # it has no parameters, and comes before the linear layer
            inputs = layer(torch.from_numpy(inputs)).numpy()
    starts = [principal_head(inputs, linear.out_features, kind) for kind in (KINDS if value_of else KINDS[:1])]
    if value_of is None:
        _fill(linear, starts[0])
        return starts[0]
    values = []
    for start in starts:
        _fill(linear, start)
        values.append(value_of())
    best = starts[int(np.argmax(values))]  # of equal ones the first, which changes least
    _fill(linear, best)
    return best


def linear_of(head: nn.Module) -> nn.Linear | None:
    """Return the linear layer of a head, or None if it has none."""
    return next((cast("nn.Linear", layer) for layer in head.modules() if isinstance(layer, nn.Linear)), None)


def sample_rows(manifest: Manifest, most: int, seed: int) -> list[int]:
    """Return at most ``most`` row numbers, in order: of every class one image before any has two."""
    if len(manifest) <= most:
        return list(range(len(manifest)))
    order = np.random.default_rng(seed).permutation(len(manifest))
    taken: dict[str, int] = {}
    turns: list[tuple[int, int]] = []
    for place, row in enumerate(order.tolist()):
        label = manifest.rows[row].label
        turns.append((taken.get(label, 0), place))
        taken[label] = taken.get(label, 0) + 1
    chosen: Sequence[tuple[int, int]] = sorted(turns)[:most]
    return sorted(int(order[place]) for _, place in chosen)


def _fill(linear: nn.Linear, start: HeadStart) -> None:
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(start.weight))
        linear.bias.copy_(torch.from_numpy(start.bias))
