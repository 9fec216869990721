"""Small comparisons for tests."""

from typing import Any

from tophit.comparing import Plan, make_plan


def toy_plan(data: str, seeds: int = 2, trials: int = 0, epochs: int = 2, **changes: Any) -> Plan:
    """Return a plan of a baseline, another loss, and one that can't learn."""
    rate = {"low": 1e-4, "high": 1e-1, "log": True}
    return make_plan(
        {
            "data": {"manifest": data, "validation_share": 0.3},
            "embedder": {"dim": 8},
            "common": {"batches": {"classes": 4, "per_class": 4}, "checkpoint": {"minutes": 0}},
            "budget": {"seeds": seeds, "trials": trials, "epochs": epochs},
            "candidates": {
                "Triplet (all)": {
                    "baseline": True,
                    "change": {"loss": "triplet"},
                    "search": {"optimizer.head.lr": rate, "loss.margin": {"low": 0.1, "high": 0.5}},
                },
                "ProxyAnchor": {"search": {"optimizer.head.lr": rate}},
                "Nothing": {"change": {"optimizer": {"head": {"lr": 0.0, "weight_decay": 0.0}}}},
            },
            **changes,
        }
    )
