"""The candidates: every objective that a claim names, with the paper's settings and the few that are searched.

Every candidate of a set gets the same number of trials: some rates times some values of its own hyper-parameters, those
that its paper names. The paper's value comes first. A rate is that of all trained weights of the embedder; proxies and
classifiers keep the ratio to it that their papers have, 100 to 1. An ablation keeps the settings that the search of its
base found, changes one thing, and searches only how long to train.
"""

from dataclasses import dataclass, replace
from typing import Any

from tophit.recipe import merged

_FASTEST_PROXIES = 0.1  # unit vectors that move faster forget where they were
_PAIRS = {"classes": 64, "per_class": 2}
_FOURS = {"classes": 28, "per_class": 4}
_ELEVENS = {"classes": 6, "per_class": 11}
_RANDOM = {"sampler": "random", "size": 128}


@dataclass(frozen=True)
class Objective:
    """Sections of a recipe, and what is searched: ``path`` gets each of ``values``, or of ``few`` with few images.

    An ablation has a ``base``, whose settings it keeps, without those that it ``sets`` itself.
    """

    change: dict[str, Any]
    path: str
    values: tuple[Any, ...]
    few: tuple[Any, ...] = ()
    proxies: float = 1.0  # rate of the loss's own parameters, in multiples of the embedder's
    base: str = ""
    sets: str = ""

    def rates(self, rate: float) -> dict[str, Any]:
        """Return the optimizer's section for a rate."""
        own = min(self.proxies * rate, max(rate, _FASTEST_PROXIES))
        return {"backbone": {"lr": rate}, "head": {"lr": rate}, "proxies": {"lr": own}}

    def candidate(self, rates: tuple[float, ...], count: int, few_images: bool) -> dict[str, Any]:
        """Return the candidate of a plan, with ``len(rates) * count`` trials."""
        values = (self.few or self.values) if few_images else self.values
        return {
            "change": self.change,
            "search": {"optimizer": list(map(self.rates, rates)), self.path: [*values[:count]]},
        }

    def kept(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the candidate of a plan that keeps the settings of a search, a single trial."""
        return {
            "change": self.change,
            "search": {path: [value] for path, value in settings.items() if path != self.sets},
        }

    def changed(self, change: dict[str, Any], path: str, values: tuple[Any, ...]) -> "Objective":
        """Return it with other sections and another search."""
        return replace(self, change=merged(self.change, change), path=path, values=values, few=())

    def ablated(self, base: str, change: dict[str, Any], sets: str = "") -> "Objective":
        """Return it as an ablation, with other sections."""
        return replace(self, change=merged(self.change, change), base=base, sets=sets)


def _loss(name: str, batches: dict[str, Any], path: str, values: tuple[Any, ...], **more: Any) -> Objective:
    options = more.pop("loss", {})
    few, proxies = more.pop("few", ()), more.pop("proxies", 1.0)
    return Objective({"loss": {"name": name, **options}, "batches": batches, **more}, path, values, few, proxies)


_MARGINS = "loss.margin", (0.2, 0.1, 0.4)
_BOUNDARIES = "loss.boundary", (1.2, 1.0, 0.8)
_PROJECTIONS = "method", ({"rho": 6.0}, {"rho": 2.0}, {"rho": 6.0, "proximal": 1e-2})
_STEEPNESS = "loss", ({"alpha": 4.0}, {"alpha": 2.0}, {"alpha": 4.0, "temperature": 0.03})
_TEMPERATURES = "loss.temperature", (0.01, 0.03, 0.005)
_PROXIES = "loss.proxies_per_class", (10, 5, 2)
_FEW_PROXIES = (2, 5, 10)
_PHI, _FEW_PHI = (0.5, 0.25, 0.1), (0.2, 0.5, 0.1)
_HARD = {"name": "balanced-hard"}
_UNIFORM = {"name": "uniform"}
_PROFS = {"name": "projection", "hncm": False}
_ONE_ANCHOR = {"name": "projection", "hncm": False, "steps": 1, "proximal": 0.0}


def _proxy(name: str, path: str, values: tuple[Any, ...], **more: Any) -> Objective:
    return _loss(name, _RANDOM, path, values, proxies=100.0, **more)


def _mpa(variant: str) -> Objective:
    return _proxy("multi-proxy-anchor", *_PROXIES, few=_FEW_PROXIES, loss={"variant": variant})


def _pair_losses() -> dict[str, Objective]:
    """Return the losses of PROFS: with hard mining, with one random anchor per class, by projections, with HNCM."""
    losses = {
        "Margin": ("margin", _BOUNDARIES),
        "Contrastive": ("contrastive", ("loss.margin", (1.0, 0.7, 0.5))),
        "Triplet": ("triplet", _MARGINS),
    }
    found = _tuple_losses()
    for word, (name, searched) in losses.items():
        found[f"{word}-Hard"] = _loss(name, _PAIRS, *searched, miner=_HARD)
        found[f"{word}, one anchor"] = _loss(name, _PAIRS, *searched, method=_ONE_ANCHOR)
        found[f"{word[0]}-PROFS"] = _loss(name, _PAIRS, *_PROJECTIONS, method=_PROFS)
        found[f"{word[0]}-PROFS+HNCM"] = _loss(name, _PAIRS, *_PROJECTIONS, method={**_PROFS, "hncm": True})
    return found


def _tuple_losses() -> dict[str, Objective]:
    """Return the losses of PROFS that no miner serves in the paper: as they are, and by projections with HNCM."""
    losses = {
        "Lifted": ("lifted-structure", ("loss.alpha", (1.0, 0.5, 2.0))),
        "N-pair": ("n-pair", ("loss.norm_penalty", (0.0, 0.02, 0.002))),
        "Angular": ("angular", ("loss.alpha", (45.0, 36.0, 40.0))),
    }
    found = {}
    for word, (name, searched) in losses.items():
        found[word] = _loss(name, _PAIRS, *searched)
        found[f"{word[0]}-PROFS+HNCM"] = _loss(name, _PAIRS, *_PROJECTIONS, method={**_PROFS, "hncm": True})
    return found


def _thsg(miner: str) -> Objective:
    method = {"name": "generation"}
    return _loss("triplet", _PAIRS, "method.phi", _PHI, few=_FEW_PHI, miner={"name": miner}, method=method)


def _objectives() -> dict[str, Objective]:
    margins = "loss.margin", (0.1, 0.2, 0.05)
    samplings = "miner", ("distance-weighted", "semi-hard", "hard")
    found = {
        "Top-k precision": _loss("topk-precision", _ELEVENS, *margins, loss={"k": 5}),
        "Triplet, best sampling": _loss("triplet", _ELEVENS, *samplings, loss={"margin": 0.2}),
        "Smooth-AP": _loss("smooth-ap", _FOURS, *_TEMPERATURES),
        "PNP-Dq": _loss("pnp", _FOURS, *_STEEPNESS, loss={"variant": "Dq", "temperature": 0.01}),
        **_pair_losses(),
        "Multi-Similarity": _loss("multi-similarity", _FOURS, "loss.base", (0.5, 0.7, 0.3)),
        "ROADMAP": _loss("roadmap", _FOURS, "loss.weight", (0.5, 0.2, 0.8)),
        "ProxyAnchor": _proxy("proxy-anchor", "loss.margin", (0.1, 0.0, 0.2)),
        "SoftTriple": _proxy("soft-triple", *_PROXIES, few=_FEW_PROXIES),
        "MPA": _mpa("class"),
        "MPA-DW": _mpa("data"),
        "MPA-AP": _mpa("all-pairs"),
        "Triplet(R)": _loss("triplet", _PAIRS, *_MARGINS, miner=_UNIFORM),
        "THSG": _thsg("uniform"),
        "Triplet(D)": _loss("triplet", _PAIRS, *_MARGINS, miner={"name": "distance-weighted"}),
        "THSG(D)": _thsg("distance-weighted"),
    }
    for variant in ("O", "Iu", "Ib", "Ds"):
        options = {"variant": variant, **({"b": 4.0} if variant == "Ib" else {})}
        found[f"PNP-{variant}"] = _loss("pnp", _FOURS, *_TEMPERATURES, loss=options)
    for name in ("Smooth-AP", "PNP-Dq", "PNP-Ib", "PNP-O"):
        found[f"{name}, merged"] = found[name].ablated(name, {"data": {"merge_classes": 3}})
    return found | _ablations(found) | _together(found)


def _ablations(found: dict[str, Objective]) -> dict[str, Objective]:
    """Return the papers' ablations of projections, proxies and parts of THSG."""
    result = {}
    for steps in (1, 5, 20, 100):
        result[f"M-PROFS, M = {steps}"] = found["M-PROFS"].ablated("M-PROFS", {"method": {"steps": steps}})
    for proximal in (0.0, 1e-2, 1.0):
        change = {"method": {"proximal": proximal}}
        result[f"M-PROFS, lambda = {proximal:g}"] = found["M-PROFS"].ablated("M-PROFS", change)
    for count in (1, 4, 8, 16):
        change = {"loss": {"proxies_per_class": count}}
        result[f"MPA, K = {count}"] = found["MPA"].ablated("MPA", change, "loss.proxies_per_class")
    parts = {
        "THSG without G2": {"second_stage": False},
        "THSG without G2 and category": {"second_stage": False, "category": False},
        "THSG, category loss alone": {"hard": False, "second_stage": False},
    }
    return result | {name: found["THSG"].ablated("THSG", {"method": fields}) for name, fields in parts.items()}


def _together(found: dict[str, Objective]) -> dict[str, Objective]:
    """Return objectives that join two papers' ideas."""
    place = "benchmarks.claims.joined_losses"
    generation = {"name": "generation", "hard_loss": "triplet"}
    return {
        "MPA + PNP": _loss(f"{place}:ProxiesAndRanking", _FOURS, "loss.weight", (0.5, 0.2), proxies=100.0),
        "PNP in projections": found["PNP-Dq"].changed({"method": _PROFS}, *_PROJECTIONS),
        "THSG on ProxyAnchor": _loss(
            f"{place}:TripletsAndProxies",
            _PAIRS,
            "method.phi",
            _PHI,
            few=_FEW_PHI,
            method=generation,
            proxies=100.0,
        ),
    }


OBJECTIVES = _objectives()
