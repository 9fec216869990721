"""What to choose for which data: one table of rules, each with its evidence and the page that has it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tophit.advice.survey import Survey

_CLAIMS = "docs/claims.md"
_FEW = 12  # images per class


@dataclass(frozen=True)
class Rule:
    """An objective and its batches for the data, and the part of a network that learns (head, last or all).

    ``page`` has the numbers of the reason.
    """

    applies: Callable[[Survey, str], bool]
    loss: str
    batches: Callable[[Survey], dict[str, Any]]
    reason: str
    page: str
    miner: str = ""


def _random(data: Survey) -> dict[str, Any]:
    return {"sampler": "random", "size": max(2, min(128, data.images["training"]))}


def _balanced(data: Survey) -> dict[str, Any]:
    per_class = int(min(4, max(2, data.median_per_class)))
    return {
        "sampler": "balanced",
        "classes": max(2, min(128 // per_class, data.classes["training"])),
        "per_class": per_class,
    }


def _pairs(data: Survey) -> dict[str, Any]:
    return {"sampler": "balanced", "classes": max(2, min(64, data.classes["training"])), "per_class": 2}


RULES = (
    Rule(
        lambda data, learns: data.median_per_class < 2,
        "proxy-anchor",
        _random,
        "most training classes have one image, so images of a class can't be compared with each other, only with "
        "proxies; more images per class would help most",
        "docs/reference/proxy-losses.md",
    ),
    Rule(
        lambda data, learns: learns == "head" and data.median_per_class <= _FEW,
        "margin",
        _pairs,
        "with few images per class heads learned most from hard pairs: with 8 views of each scanned product recall@1 "
        "was 73.8, with Proxy-Anchor 72.0; with 6 drawings of each emoji 52.5 and 49.7",
        "docs/benchmarks/default-head.md",
        "balanced-hard",
    ),
    Rule(
        lambda data, learns: data.median_per_class <= _FEW,
        "smooth-ap",
        _balanced,
        "with few images per class ranking losses were among the best: on the icons, which have 9, Smooth-AP reached "
        "recall@1 70.4 with a head, and Proxy-Anchor about as much",
        "docs/benchmarks/ranking-losses.md",
    ),
    Rule(
        lambda data, learns: True,
        "proxy-anchor",
        _random,
        "with many images per class it was among the best: a head on features of CUB-200-2011, which has 59, reached "
        "recall@1 59.3, with Smooth-AP 58.7; multi-proxy-anchor was level with it",
        _CLAIMS,
    ),
)
"""In order; the first that applies is advised."""


def rule_for(data: Survey, learns: str) -> Rule:
    """Return the first rule that applies where this part of a network learns."""
    return next(rule for rule in RULES if rule.applies(data, learns))


def advised_size(data: Survey, own: int) -> tuple[int, str]:
    """Return the side of the input to use with a backbone that was trained at ``own`` pixels, and why."""
    if data.width is None or data.height is None or min(data.width, data.height) >= own:
        return own, "the size that the backbone was trained at, and the pictures are at least as large"
    side = max(32, -(-min(data.width, data.height) // 32) * 32)
    return min(
        side, own
    ), f"the pictures have only {min(data.width, data.height)} pixels; more would cost time for nothing"


_MINUTES = {"all": 30.0, "last": 30.0}  # that a user is likely to wait; a head takes seconds


def advised_choice(seconds: dict[str, float]) -> tuple[str, str]:
    """Return which of the choices, by their seconds at the advised size, to begin with, and why."""
    for name in ("all", "last"):
        if name in seconds and seconds[name] <= 60 * _MINUTES[name]:
            others = "the whole network" if name == "all" else "the network's last stages"
            return name, (
                f"training {others} fits into {_MINUTES[name]:.0f} minutes here, and may gain more than a head: on the "
                "icons the whole network reached recall@1 82.7, a head 68.8 (docs/benchmarks/finetune.md)"
            )
    return "head", "anything more would take longer than half an hour here; begin with a head"
