"""The comparison of each data set: every method that a claim names, as the preset ``papers`` has it, and some more."""

from typing import Any

from tophit.comparing import Plan, make_plan, preset_fields
from tophit.recipe import merged

RATES = [5e-4, 2e-3]
PROXIES = (4, 8, 12, 16)
MERGED = ("Smooth-AP", "PNP-O", "PNP-Iu", "PNP-Ib", "PNP-Dq")
ABLATIONS: dict[str, dict[str, Any]] = {
    "THSG without G2": {"second_stage": False},
    "THSG without G2 and category": {"second_stage": False, "category": False},
    "THSG without hard and category": {"hard": False, "category": False},
}
HEAD: dict[str, Any] = {"embedder": {"trainable": "head", "dim": 512}, "epochs": 4, "trials": len(RATES)}
NET: dict[str, Any] = {
    "embedder": {
        "backbone": "small",
        "weights": "random",
        "trainable": "all",
        "dim": 64,
        "size": 16,
        "crop": 1.0,
        "freeze_batch_norm": False,
    },
    "epochs": 4,
    "trials": 0,
}


def claims_plan(title: str, data: str, seeds: int, setting: dict[str, Any]) -> Plan:
    """Return the plan of a data set: heads whose rate is one of two, chosen on validation classes, or a small net."""
    return make_plan(
        {
            "title": title,
            "data": {"manifest": data, "validation_share": 0.2, "cache": "ram"},
            "embedder": setting["embedder"],
            "common": {
                "optimizer": {"backbone": {"lr": 1e-3}, "head": {"lr": 1e-3}},
                "schedule": {"warmup_epochs": 0},
                "augment": {"scale": [0.8, 1.0], "flip": False},
            },
            "budget": {"seeds": seeds, "trials": setting["trials"], "epochs": setting["epochs"], "evaluations": 1},
            "metrics": ["recall@1", "precision@5", "MAP@R"],
            "candidates": {
                name: {**candidate, "search": {"optimizer.head.lr": RATES}}
                for name, candidate in candidates(setting is HEAD).items()
            },
        }
    )


def candidates(heads: bool) -> dict[str, dict[str, Any]]:
    """Return the candidates of all claims; heads of THSG's claims have 128 dimensions, as in its Tables 6 to 8."""
    found = preset_fields("papers")["candidates"]
    del found["ProxyNCA"]
    if heads:
        short = {name for name, candidate in found.items() if candidate["note"] == "thsg"}
        found |= {name: _changed(found[name], {"embedder": {"dim": 128}}) for name in short}
    for count in PROXIES:
        found[f"MPA, K = {count}"] = _changed(found["MPA"], {"loss": {"proxies_per_class": count}})
    for name in MERGED:
        found[f"{name}, merged"] = _changed(found[name], {"data": {"merge_classes": 3}})
    for name, fields in ABLATIONS.items():
        found[name] = _changed(found["THSG"], {"method": fields})
    return found


def _changed(candidate: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {**candidate, "change": merged(candidate["change"], change)}
