"""Batches for hierarchies: the leaves of a batch come in families, so that its hardest negatives are siblings."""

from collections.abc import Hashable, Sequence
from typing import Annotated

import numpy as np

from tophit.batches.balanced import BalancedBatchSampler, Group
from tophit.errors import UsageError
from tophit.options import Count, Doc
from tophit.registry import register
from tophit.wording import counted

Run = list[tuple[int, Group]]
"""Groups of images of different siblings, with the number of each one's leaf: they go into one batch."""


@register("sampler", "siblings")
class SiblingBatchSampler(BalancedBatchSampler):
    """Batches of about ``classes`` leaves of a hierarchy with ``per_class`` images each, from ``families`` families.

    ``paths`` are the levels of every image, from the coarsest; leaves with the same parent are siblings. As with
    ``BalancedBatchSampler``, each leaf is cut into groups of ``per_class`` images, every image comes once per epoch as
    far as class sizes allow, and no batch holds two groups of a leaf. Here the groups of up to ``classes / families``
    siblings are kept together. A leaf without siblings, or whose siblings have no groups left, comes alone.
    ``seed`` and ``epoch`` fix the batches of an epoch.
    """

    def __init__(
        self,
        paths: Sequence[Sequence[Hashable]],
        classes: Annotated[Count, Doc("Classes in a balanced batch.")] = 32,
        per_class: Annotated[Count, Doc("Images of each class in a balanced batch.")] = 4,
        families: Annotated[Count, Doc("Families (classes with the same parent) in a batch of siblings.")] = 8,
        seed: int = 0,
        repeat_small_classes: Annotated[
            bool, Doc("Fill groups up to per_class, repeating the images of smaller classes.")
        ] = False,
    ) -> None:
        leaves = [tuple(path) for path in paths]
        if families > classes:
            raise UsageError(f"batches.families: {families} families need at least as many classes, not {classes}.")
        self.parents = [leaf[:-1] for leaf in dict.fromkeys(leaves)]  # in the order of rows_of_class
        self.together = -(-min(classes, len(self.parents)) // families)
        super().__init__(leaves, classes, per_class, seed, repeat_small_classes)

    @property
    def coverage(self) -> str:
        """What an epoch shows, in a sentence."""
        batches = self._deal_leaves(np.random.default_rng((self.seed, 0)))
        groups = met = 0
        for batch in batches:
            parents = [self.parents[leaf] for leaf, _ in batch]
            groups += len(batch)
            met += sum(parents.count(parent) > 1 for parent in parents)
        images = len({row for rows in self.rows_of_class for row in rows})
        return (
            f"Each epoch shows all {counted(images, 'image')} of {counted(len(self.parents), 'leaf', 'leaves')} in "
            f"{counted(len(set(self.parents)), 'family')}; {met / groups:.0%} of a batch's leaves meet a sibling in it."
        )

    def _deal(self, generator: np.random.Generator) -> list[list[Group]]:
        return [[group for _, group in batch] for batch in self._deal_leaves(generator)]

    def _deal_leaves(self, generator: np.random.Generator) -> list[Run]:
        """Deal the runs, the longest first, each to the emptiest batch that has none of its leaves."""
        groups_of_leaf = [self._groups(rows, generator) for rows in self.rows_of_class]
        runs = self._runs(groups_of_leaf, generator)
        total = sum(map(len, groups_of_leaf))
        # Batches are planned to be less than full, so that a run of siblings finds one that it fits into whole.
        room = max(self.together, self.classes - self.together + 1)
        count = max(-(-total // room), max(map(len, groups_of_leaf)))
        dealt: list[Run] = [[] for _ in range(count)]
        held: list[set[int]] = [set() for _ in range(count)]
        filled = np.zeros(count, np.int64)

        def place(run: Run) -> bool:
            leaves = {leaf for leaf, _ in run}
            for batch in np.lexsort((generator.random(count), filled)).tolist():
                if not held[batch] & leaves:
                    dealt[batch] += run
                    held[batch] |= leaves
                    filled[batch] += len(run)
                    return True
            return False

        for run in sorted(runs, key=len, reverse=True):
            if not place(run):
                for one in run:
                    place([one])
        return [dealt[i] for i in generator.permutation(count)]

    def _runs(self, groups_of_leaf: Sequence[list[Group]], generator: np.random.Generator) -> list[Run]:
        """Return runs of siblings: again and again those of a family's leaves that have the most groups left."""
        families: dict[Hashable, list[int]] = {}
        for leaf in generator.permutation(len(groups_of_leaf)).tolist():
            families.setdefault(self.parents[leaf], []).append(leaf)
        runs = []
        for leaves in families.values():
            left = {leaf: list(groups_of_leaf[leaf]) for leaf in leaves}
            while left:
                chosen = sorted(left, key=lambda leaf: -len(left[leaf]))[: self.together]
                runs.append([(leaf, left[leaf].pop()) for leaf in chosen])
                left = {leaf: groups for leaf, groups in left.items() if groups}
        return [runs[i] for i in generator.permutation(len(runs))]
