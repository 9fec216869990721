"""Where a head begins: at the principal components of the training features, so that nothing is lost before step 1.

A random projection to fewer dimensions loses some points of recall that training must first win back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import nn

from tophit.data.manifest import Manifest
from tophit.models.embedder import Embedder

MOST_IMAGES = 2048  # whose features give the components, where training does not need the features of all images
_MOST_VECTORS = 20_000


@dataclass(frozen=True)
class HeadStart:
    """A linear head: ``weight`` (dim, channels) and ``bias`` (dim,), and how many rows are components."""

    weight: np.ndarray
    bias: np.ndarray
    components: int
    is_whitened: bool

    def sentence(self, dim: int) -> str:
        """Say where the head begins."""
        more = "" if self.components == dim else f"; the other {dim - self.components} dimensions begin at 0"
        how = ", whitened within classes" if self.is_whitened else ""
        return f"The head begins at {self.components} principal components of the training features{how}{more}."


def principal_head(features: np.ndarray, dim: int, labels: Sequence[str] | None = None) -> HeadStart:
    """Return the linear map to the first ``dim`` principal components of features (N, channels).

    Without labels these are the eigenvectors of the second moments, which keep cosines best. With labels (N,) the
    features are centred, and whitened within classes: multiplied by (S + m)^(-1/2), with the covariance S around the
    means of the classes and the mean m of its eigenvalues. So directions in which images of a class differ count less,
    and those of little variance do not become noise. (Whitening by the covariance of all features would drive images of
    learned classes apart.) If no class has two images, labels are ignored.

    Directions that the features do not vary in complete the basis, since images of other classes may vary in them. If
    ``dim`` exceeds the channels, the remaining rows are 0; they learn like the others. The matrix has the norm that
    torch's random start has on average, so that learning rates mean the same for both.
    """
    taken = np.linspace(0, len(features) - 1, min(len(features), _MOST_VECTORS)).astype(int)
    x = np.asarray(features[taken], np.float64)
    classes = np.unique([labels[row] for row in taken] if labels else taken, return_inverse=True)[1]
    is_whitened = bool(classes.max() + 1 < len(classes))
    channels, found = x.shape[1], min(dim, x.shape[1])
    mean, whitening = np.zeros(channels), np.eye(channels)
    if is_whitened:
        mean, whitening = x.mean(axis=0), _whitening_within(x, classes)
    spread = (x - mean) @ whitening
    rows = np.linalg.eigh(spread.T @ spread)[1].T[::-1][:found]
    rows = rows * np.sign(rows[np.arange(found), np.abs(rows).argmax(axis=1)])[:, None]  # its own sign is arbitrary
    rows = rows @ whitening
    rows = rows * np.sqrt(dim / 3) / np.linalg.norm(rows)  # entries of nn.Linear have the variance 1 / (3 channels)
    weight = np.zeros((dim, channels))
    weight[:found] = rows
    return HeadStart(weight.astype(np.float32), (-weight @ mean).astype(np.float32), found, is_whitened)


def _whitening_within(x: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return (S + m)^(-1/2) (channels, channels) for the covariance S of x (N, channels) within classes (N,)."""
    sizes = np.bincount(classes)
    sums = np.zeros((len(sizes), x.shape[1]))
    np.add.at(sums, classes, x)
    within = x - (sums / sizes[:, None])[classes]
    variances, vectors = np.linalg.eigh(within.T @ within / (len(x) - len(sizes)))
    shrunk = np.clip(variances, 0, None) + max(variances.mean(), np.finfo(np.float64).tiny)
    return (vectors / np.sqrt(shrunk)) @ vectors.T


def begin_head(embedder: Embedder, features: np.ndarray, labels: Sequence[str] | None = None) -> HeadStart | None:
    """Let an embedder's head begin at principal components of features (N, channels), whitened if there are labels.

    Returns None if the embedder has no head.
    """
    linear = linear_of(embedder.head)
    if linear is None or not len(features):
        return None
    inputs = np.asarray(features, np.float32)
    for layer in embedder.head.modules():
        if isinstance(layer, nn.LayerNorm):  # it has no parameters, and comes before the linear layer
            inputs = layer(torch.from_numpy(inputs)).numpy()
    start = principal_head(inputs, linear.out_features, labels)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(start.weight))
        linear.bias.copy_(torch.from_numpy(start.bias))
    return start


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
