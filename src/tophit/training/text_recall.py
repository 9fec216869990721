"""Words in evaluation: how well texts, or class names, find their images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.evaluation import PairedDifference, paired_difference
from tophit.models.embedder import Embedder

PROMPT = "a photo of a {}"
TEXT = "text"
"""The column of a manifest that says in words what an image shows."""
_AT = (1, 5, 10)
_BLOCK = 256  # texts that are compared with all images at a time


def prompts(names: Sequence[str], prompt: str = PROMPT) -> list[str]:
    """Return class names as sentences.

    >>> prompts(["red_mug"])
    ['a photo of a red mug']
    """
    return [prompt.format(name.replace("_", " ")) for name in names]


@dataclass(frozen=True)
class TextSearch:
    """How well words find images: the share of texts with a right image among the first k, and that of each text.

    ``texts`` are the column ``text`` of a manifest, whose right images are those with the same text, else class names.
    """

    metrics: dict[str, float]
    found: dict[str, np.ndarray]
    texts: list[str]

    def against(self, other: "TextSearch") -> dict[str, PairedDifference]:
        """Return what this one finds more than another, text by text, with intervals."""
        return {
            name: paired_difference(values, other.found[name], self.texts)
            for name, values in self.found.items()
            if name in other.found
        }


def text_search(embedder: Embedder, vectors: np.ndarray, rows: Sequence[ImageRow], prompt: str = PROMPT) -> TextSearch:
    """Search rows with vectors (N, dim) by words.

    It finds nothing for a model without a text tower, and, without a column ``text``, for rows with several labels or
    none.
    """
    own = any(row.metadata.get(TEXT) for row in rows)
    keys = np.array([str(row.metadata.get(TEXT) or "") if own else row.label for row in rows])
    names = sorted({key for key in keys if key})
    if not embedder.takes_words or not names or (not own and any(row.kind != "one" for row in rows)):
        return TextSearch({}, {}, [])
    most = min(max(_AT), len(rows))
    first_right: list[int] = []
    for start in range(0, len(names), _BLOCK):
        some = names[start : start + _BLOCK]
        scores = embedder.encode_text(some if own else prompts(some, prompt)) @ vectors.T
        nearest = np.argsort(-scores, axis=1, kind="stable")[:, :most]
        right = keys[nearest] == np.array(some)[:, None]
        first_right += np.where(right.any(axis=1), right.argmax(axis=1), most).tolist()
    found = {f"text recall@{k}": (np.array(first_right) < k).astype(float) for k in _AT if k <= most}
    return TextSearch({name: float(values.mean()) for name, values in found.items()}, found, names)


def text_sentence(differences: Mapping[str, PairedDifference], search: Mapping[str, float], rival: str) -> str:
    """Say what search by words gained or lost against another model; nothing without differences."""
    parts = [
        f"{name} {100 * search[name]:.1f}, {100 * value.mean:+.1f} points (95% interval {100 * value.low:+.1f} to "
        f"{100 * value.high:+.1f})"
        for name, value in differences.items()
    ]
    return f"Search by words against {rival}: {'; '.join(parts)}." if parts else ""
