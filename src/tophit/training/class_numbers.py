"""Labels as numbers: what a loss takes, and what samplers deal by, for each kind of label."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tophit.data.label_kinds import LabelKind
from tophit.data.manifest import ImageRow
from tophit.losses.label_sets import NO_LABEL


@dataclass(frozen=True)
class ClassNumbers:
    """The classes of rows: their ``names`` in order, and what each row has of them.

    ``classes`` (N,) numbers one label, or a hierarchy's leaf; of several labels it numbers their combinations.
    ``for_loss`` is what the loss takes: the classes, paths (N, L), or several labels (N, K) padded with -1.
    """

    kind: LabelKind
    names: list[str]
    classes: np.ndarray
    for_loss: torch.Tensor
    paths: Sequence[tuple[str, ...]] = ()
    """The levels of every row, for a hierarchy."""

    @property
    def sets(self) -> list[list[int]]:
        """The numbers of every row's labels."""
        table = self.for_loss.tolist() if self.kind == "several" else self.classes[:, None].tolist()
        return [[number for number in row if number >= 0] for row in table]


def class_numbers(rows: Sequence[ImageRow], takes_paths: bool = False) -> ClassNumbers:
    """Return the classes of rows, numbered in the order of their names; ``takes_paths``: the loss sees all levels."""
    kind: LabelKind = rows[0].kind if rows else "one"
    names, classes = np.unique(np.asarray([row.label for row in rows]), return_inverse=True)
    for_loss = torch.from_numpy(classes)
    if kind == "several":
        labels = sorted({name for row in rows for name in row.names})
        return ClassNumbers(kind, labels, classes, _padded([row.names for row in rows], labels))
    if kind == "path" and takes_paths:
        for_loss = _levels([row.names for row in rows], classes)
    paths = [row.names for row in rows] if kind == "path" else ()
    return ClassNumbers(kind, names.tolist(), classes, for_loss, paths)


def _padded(sets: Sequence[Sequence[str]], names: Sequence[str]) -> torch.Tensor:
    """Return the numbers (N, K) of the names in each set, K the most in one, padded with -1."""
    numbers = {name: number for number, name in enumerate(names)}
    table = torch.full((len(sets), max(map(len, sets))), NO_LABEL)
    for row, each in enumerate(sets):
        table[row, : len(each)] = torch.tensor([numbers[name] for name in each])
    return table


def _levels(paths: Sequence[tuple[str, ...]], leaves: np.ndarray) -> torch.Tensor:
    """Return the number of each path's beginning at every level (N, L); at the last level the number of the leaf."""
    columns = []
    for level in range(1, len(paths[0])):
        numbers: dict[tuple[str, ...], int] = {}
        columns.append([numbers.setdefault(path[:level], len(numbers)) for path in paths])
    return torch.tensor([*columns, leaves.tolist()]).T.contiguous()
