"""The papers' claims as hypotheses: which candidate is said to beat which, and by how much on the papers' sets.

Gains are differences in recall@1, in points, from the papers' tables. The first claim of a paper is its main one: one
verdict of the first table in each regime. It names the claim of the regime that it was made in; where a paper has no
number for a set, the number of the regime it was made in is used and marked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Claim:
    """``better`` has a higher recall@1 than ``worse``, by ``gains`` points on the papers' sets."""

    better: str
    worse: str
    gains: Mapping[str, float] = field(hash=False)  # by the paper's set: CUB, Cars, SOP
    note: str = ""

    @property
    def name(self) -> str:
        """The claim in a few words."""
        return f"{self.better} > {self.worse}"

    def gain(self, like: str) -> float | None:
        """Return the paper's gain on one of its sets; if it has none there, the mean of those it has, if any."""
        if not self.gains:
            return None
        return self.gains[like] if like in self.gains else sum(self.gains.values()) / len(self.gains)


@dataclass(frozen=True)
class Paper:
    """A paper: its main claim in each regime, its further claims, its ablations, and how it was trained."""

    title: str
    says: str
    main: Mapping[str, Claim]  # by regime
    further: tuple[Claim, ...]
    ablations: tuple[Claim, ...]
    trained: str


def _everywhere(claim: Claim) -> dict[str, Claim]:
    return dict.fromkeys("abc", claim)


_TOPK = Paper(
    "Sampling Wisely: top-k precision (ICCV 2019)",
    "The top-k precision loss beats the triplet loss in each of four samplings. Here the sampling of the triplets is "
    "searched: the baseline is the better of distance-weighted and semi-hard. Hard and uniform sampling are not tried.",
    _everywhere(
        Claim(
            "Top-k precision",
            "Triplet, best sampling",
            {"CUB": 61.07 - 57.56, "Cars": 80.03 - 75.16, "SOP": 78.40 - 74.98},
            "the paper's best triplet sampling on each set",
        )
    ),
    (),
    (),
    "DenseNet-201, all of it, 64 dimensions",
)

_DQ = Claim("PNP-Dq", "Smooth-AP", {"SOP": 81.1 - 80.1}, "batches of 384")
_PNP = Paper(
    "PNP: penalising negatives before positives (AAAI 2022)",
    "PNP-Dq beats Smooth-AP; decreasing weights (D) beat equal ones (O), which beat increasing ones (I); with every "
    "three training classes merged into one, Dq stays the best.",
    _everywhere(_DQ),
    (
        Claim("PNP-Dq", "PNP-O", {"SOP": 80.1 - 77.9}),
        Claim("PNP-Ds", "PNP-O", {"SOP": 79.6 - 77.9}),
        Claim("PNP-O", "PNP-Iu", {"SOP": 77.9 - 76.3}),
        Claim("PNP-Dq", "PNP-Ib", {"SOP": 80.1 - 77.9}),
    ),
    (
        Claim("PNP-Dq, merged", "Smooth-AP, merged", {"SOP": 73.8 - 73.2}),
        Claim("PNP-Dq, merged", "PNP-Ib, merged", {"SOP": 73.8 - 67.5}, "the text names Ib, the table I"),
        Claim("PNP-Dq, merged", "PNP-O, merged", {"SOP": 73.8 - 67.5}, "not in the paper: the gain over I"),
    ),
    "ResNet-50, all of it; SOP and VehicleID",
)

_PROJECTIONS = tuple(
    Claim("M-PROFS", f"M-PROFS, {word}", {}, "the paper's text has no number")
    for word in ("M = 1", "M = 5", "M = 20", "M = 100", "lambda = 0", "lambda = 0.01", "lambda = 1")
)
_PROFS = Paper(
    "PROFS: alternating projections onto feasible sets (ICIP 2021)",
    "For six losses, projections with hard negative class mining (HNCM) beat the same loss with hard mining. The "
    "margin loss has the paper's best rows. A control has one random anchor per class, as PROFS has, without its "
    "projections: a representative for one step only, and no proximal term.",
    _everywhere(Claim("M-PROFS+HNCM", "Margin-Hard", {"CUB": 58.5 - 55.3, "Cars": 77.0 - 75.1, "SOP": 76.3 - 73.9})),
    (
        Claim(
            "M-PROFS+HNCM",
            "Margin, one anchor",
            {"CUB": 58.5 - 55.3, "Cars": 77.0 - 75.1, "SOP": 76.3 - 73.9},
            "the control",
        ),
        Claim("M-PROFS", "Margin-Hard", {"CUB": 57.7 - 55.3, "Cars": 76.0 - 75.1, "SOP": 74.5 - 73.9}),
        Claim("M-PROFS+HNCM", "M-PROFS", {"CUB": 58.5 - 57.7, "Cars": 77.0 - 76.0, "SOP": 76.3 - 74.5}),
        Claim("C-PROFS+HNCM", "Contrastive-Hard", {"CUB": 57.9 - 56.7, "Cars": 77.0 - 75.8, "SOP": 74.5 - 67.9}),
        Claim("T-PROFS+HNCM", "Triplet-Hard", {"CUB": 58.1 - 56.8, "Cars": 74.5 - 71.4, "SOP": 74.9 - 65.4}),
        Claim("L-PROFS+HNCM", "Lifted", {"CUB": 54.6 - 53.5, "Cars": 70.7 - 67.5, "SOP": 69.3 - 66.7}),
        Claim("N-PROFS+HNCM", "N-pair", {"CUB": 56.7 - 56.0, "Cars": 77.6 - 76.7, "SOP": 71.9 - 70.8}),
        Claim("A-PROFS+HNCM", "Angular", {"CUB": 55.8 - 54.5, "Cars": 77.9 - 77.4, "SOP": 73.7 - 72.5}),
    ),
    _PROJECTIONS,
    "GoogLeNet, all of it, 100 epochs; the best epoch on the test classes is reported",
)

_MPA = Paper(
    "Multi Proxy Anchor family (arXiv 2110.03997)",
    "MPA beats ProxyAnchor on CUB and Cars; on SOP, where it does not, MPA-DW does. With one proxy MPA is ProxyAnchor.",
    {
        "a": (_class := Claim("MPA", "ProxyAnchor", {"CUB": 69.2 - 68.6, "Cars": 86.8 - 86.1})),
        "b": Claim("MPA-DW", "ProxyAnchor", {"SOP": 78.4 - 77.6}),
        "c": _class,
    },
    (
        Claim("MPA", "SoftTriple", {"CUB": 69.2 - 67.6, "Cars": 86.8 - 86.0}),
        Claim("MPA-AP", "ProxyAnchor", {"CUB": 69.1 - 68.6, "Cars": 87.1 - 86.1, "SOP": 78.1 - 77.6}),
    ),
    (
        Claim("MPA, K = 4", "MPA, K = 1", {"CUB": 69.0 - 68.4, "Cars": 86.1 - 86.0}),
        Claim("MPA, K = 8", "MPA, K = 4", {"CUB": 69.1 - 69.0, "Cars": 86.6 - 86.1}),
        Claim("MPA, K = 8", "MPA, K = 16", {"CUB": 69.1 - 67.6, "Cars": 86.6 - 86.4}),
    ),
    "BN-Inception, all of it, 60 epochs",
)

_THSG = Paper(
    "THSG: two-stage hard sample generation (arXiv 2112.02259)",
    "Triplets with generated hard ones and a category loss beat the same triplets without; each part adds.",
    _everywhere(Claim("THSG", "Triplet(R)", {"CUB": 61.3 - 58.0, "Cars": 80.2 - 67.8, "SOP": 76.2 - 71.0})),
    (
        Claim("THSG(D)", "Triplet(D)", {"CUB": 63.2 - 62.5, "Cars": 81.6 - 77.7, "SOP": 78.5 - 77.8}),
        Claim("THSG", "THSG, category loss alone", {"Cars": 80.2 - 67.8}, "not in the paper: what generating adds"),
    ),
    (
        Claim("THSG", "THSG without G2", {"Cars": 80.2 - 76.5}),
        Claim("THSG without G2", "THSG without G2 and category", {"Cars": 76.5 - 71.9}),
        Claim("THSG without G2 and category", "Triplet(R)", {"Cars": 71.9 - 67.8}),
    ),
    "ResNet-50, all of it, 128 dimensions, 150 epochs",
)

PAPERS = (_TOPK, _PNP, _PROFS, _MPA, _THSG)


def _named(claims: list[Claim]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for claim in claims for name in (claim.better, claim.worse)))


BASELINE = "ProxyAnchor"
CONTROL = "Margin, one anchor"
FIRST = {regime: _named([paper.main[regime] for paper in PAPERS]) for regime in ("a", "b", "c")}
"""The candidates of the first table in each regime."""
_ANY = (*dict.fromkeys(name for names in FIRST.values() for name in names), CONTROL)
FURTHER = tuple(name for name in _named([claim for paper in PAPERS for claim in paper.further]) if name not in _ANY)
ABLATIONS = tuple(
    name for name in _named([claim for paper in PAPERS for claim in paper.ablations]) if name not in (*_ANY, *FURTHER)
)
TOGETHER = ("MPA + PNP", "PNP in projections", "THSG on ProxyAnchor")
SINGLE = (
    "ProxyAnchor",
    "MPA",
    "Margin-Hard",
    "Top-k precision",
    "Smooth-AP",
    "PNP-Dq",
    "ROADMAP",
    "Multi-Similarity",
)
"""Objectives of one idea that a user may begin with, beside those that join two."""
ROBUST = (
    "PNP-Dq",
    "Smooth-AP",
    "ProxyAnchor",
    "MPA",
    "Margin-Hard",
    "M-PROFS+HNCM",
    "Triplet(R)",
    "THSG",
    "Top-k precision",
)
"""The objectives that are tried with wrong labels and a long tail."""
