"""Hits: what a search found, with metadata, as users see it."""

import json
from collections.abc import Sequence

from tophit.search.backend import Hit
from tophit.search.filters import Condition
from tophit.search.local.hit_check import check_hits
from tophit.search.local.part_search import Found


def plain_hits(found: Found) -> list[list[Hit]]:
    """Return hits whose metadata is left empty."""
    return [
        [Hit(rank, score, one, {}) for rank, (score, one) in enumerate(zip(scores, ids, strict=True), 1)]
        for scores, ids in zip(found.scores, found.ids, strict=True)
    ]


def full_hits(found: Found, where: Sequence[Condition]) -> list[list[Hit]]:
    """Return hits with their metadata, which must meet the conditions that they were found by."""
    answers: list[list[Hit]] = []
    for scores, ids, texts in zip(found.scores, found.ids, found.texts, strict=True):
        metadata = json.loads(f"[{','.join(texts)}]")  # one call is faster than one for each
        if where:
            check_hits(metadata, where)
        answers.append(list(map(Hit, range(1, len(ids) + 1), scores, ids, metadata)))
    return answers
