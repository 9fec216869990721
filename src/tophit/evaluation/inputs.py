"""The inputs of metrics: vectors as arrays or tensors, labels of any kind; errors say what to correct."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    Array = np.ndarray | torch.Tensor | Sequence[Any]
else:
    Array = Any
MEMORY_BUDGET = 2**30  # bytes beyond the inputs
_BLOCK = 4096  # rows checked at a time


def as_vectors(vectors: Array, name: str = "embeddings") -> "torch.Tensor":
    """Return vectors as a tensor (N, d) on the CPU in their own type, checked to be finite, without a needless copy."""
    import torch

    rows = vectors if isinstance(vectors, torch.Tensor) else torch.as_tensor(np.asarray(vectors))
    rows = rows.detach().cpu()
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] == 0:
        raise ValueError(f"{name} must have shape (N, d) with N and d at least 1, got {tuple(rows.shape)}")
    if rows.is_complex():
        raise ValueError(f"{name} must be real numbers")
    rows = rows.float() if rows.dtype == torch.bfloat16 else rows  # numpy has no such type
    for start in range(0, len(rows), _BLOCK):
        if not np.isfinite(rows[start : start + _BLOCK].numpy()).all():
            raise ValueError(f"{name} contain NaN or infinite values")
    return rows


def encode_labels(*lists: Array) -> list[np.ndarray]:
    """Return lists of labels as integers from 0; equal labels get equal integers in all lists.

    Labels are strings or integers of any size; they are numbered in the order of first appearance.
    """
    if all(getattr(x, "ndim", 0) == 1 for x in lists):
        arrays = [np.asarray(x) for x in lists]
        if np.issubdtype(np.result_type(*arrays), np.integer):
            return _encode_integers(arrays)
    codes: dict[Hashable, int] = {}
    plain: list[list[Any]] = [getattr(x, "tolist", lambda x=x: list(x))() for x in lists]
    return [np.asarray([codes.setdefault(label, len(codes)) for label in each], np.int64) for each in plain]


def _encode_integers(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Do what ``encode_labels`` does for arrays of integers, without a Python loop."""
    _, first, codes = np.unique(np.concatenate(arrays), return_index=True, return_inverse=True)
    by_appearance = np.empty(len(first), np.int64)
    by_appearance[np.argsort(first)] = np.arange(len(first))
    return np.split(by_appearance[codes], np.cumsum([len(array) for array in arrays])[:-1])


def check_labelled(vectors: "torch.Tensor", labels: np.ndarray, name: str = "embeddings") -> None:
    """Raise unless there is one label per vector."""
    if len(vectors) != len(labels):
        raise ValueError(f"{len(vectors)} {name} but {len(labels)} labels; every row needs one label")


def labelled_vectors(embeddings: Array, labels: Array) -> "tuple[torch.Tensor, np.ndarray]":
    """Return checked vectors (N, d) and their labels as integers from 0 (N,)."""
    vectors = as_vectors(embeddings)
    (classes,) = encode_labels(labels)
    check_labelled(vectors, classes)
    return vectors, classes


def unit_rows(rows: "torch.Tensor") -> "torch.Tensor":
    """Return rows of length 1 (a zero row stays zero), float64 for float64 and float32 for every other type."""
    import torch

    # numpy uses one thread: for many small blocks, waking the threads of torch costs more than the work.
    plain = rows.numpy().astype(np.float64 if rows.dtype == torch.float64 else np.float32)
    lengths = np.sqrt(np.einsum("nd,nd->n", plain, plain))
    plain /= np.where(lengths > 0, lengths, 1)[:, None]
    return torch.from_numpy(plain)


def check_level(confidence: float) -> None:
    """Raise unless a confidence level is strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, such as 0.95, not {confidence}")
