"""The papers' main claims as hypotheses: which candidates are said to beat which, and the paper's own numbers."""

from dataclasses import dataclass

_LOSSES = {
    "C": "Contrastive-Hard",
    "T": "Triplet-Hard",
    "L": "Lifted",
    "N": "N-pair",
    "A": "Angular",
    "M": "Margin-Hard",
}
_MINERS = {"R": "THSG", "Semi": "THSG(Semi)", "Soft": "THSG(Soft)", "D": "THSG(D)"}
# R@1 in percent of the PROFS paper's Table 1: baseline, PROFS, PROFS + HNCM on CUB and on Cars.
_PROFS = {
    "C": ("56.7 → 57.7 → 57.9", "75.8 → 76.0 → 77.0"),
    "T": ("56.8 → 57.9 → 58.1", "71.4 → 74.5 → 74.5"),
    "L": ("53.5 → 54.5 → 54.6", "67.5 → 68.4 → 70.7"),
    "N": ("56.0 → 56.5 → 56.7", "76.7 → 77.8 → 77.6"),
    "A": ("54.5 → 54.6 → 55.8", "77.4 → 77.5 → 77.9"),
    "M": ("55.3 → 57.7 → 58.5", "75.1 → 76.0 → 77.0"),
}
_THSG = {
    "R": "CUB 58.0 → 61.3, Cars 67.8 → 80.2",
    "Semi": "CUB 59.2 → 61.3, Cars 70.6 → 79.8",
    "Soft": "CUB 60.3 → 62.4, Cars 76.9 → 80.3",
    "D": "CUB 62.5 → 63.2, Cars 77.7 → 81.6",
}


@dataclass(frozen=True)
class Claim:
    """One hypothesis: ``better`` has a higher metric than ``worse``."""

    better: str
    worse: str
    paper: str  # the paper's own numbers
    metric: str = "recall@1"


@dataclass(frozen=True)
class Paper:
    """A paper with its claims, and what differs here."""

    title: str
    says: str
    claims: list[Claim]
    differs: str


def _topk() -> Paper:
    numbers = {
        "uniform": "CUB 46.49 → 61.07, Cars 55.53 → 80.03",
        "hard": "CUB 55.30 → 61.07, Cars 69.56 → 80.03",
        "semi-hard": "CUB 55.91 → 61.07, Cars 75.16 → 80.03",
        "distance-weighted": "CUB 57.56 → 61.07, Cars 66.34 → 80.03",
    }
    first_page = {
        "uniform": "CUB 40.65 → 55.52, Cars 43.00 → 70.83",
        "hard": "CUB 49.57 → 55.52, Cars 58.06 → 70.83",
        "semi-hard": "CUB 49.73 → 55.52, Cars 64.76 → 70.83",
        "distance-weighted": "CUB 51.74 → 55.52, Cars 54.44 → 70.83",
    }
    claims = [Claim("Top-k precision", f"Triplet {name} (6x11)", text) for name, text in numbers.items()]
    claims += [
        Claim("Top-k precision", f"Triplet {name} (6x11)", text, "precision@5") for name, text in first_page.items()
    ]
    return Paper(
        "Sampling Wisely: top-k precision (ICCV 2019)",
        "The top-k precision loss beats the triplet loss in each of four samplings.",
        claims,
        "DenseNet-201, all of it trained, 64 dimensions.",
    )


def _pnp() -> Paper:
    claims = [
        Claim("PNP-Dq", "PNP-O", "SOP 77.9 → 80.1"),
        Claim("PNP-Ds", "PNP-O", "SOP 77.9 → 79.6"),
        Claim("PNP-O", "PNP-Iu", "SOP 76.3 → 77.9"),
        Claim("PNP-O", "PNP-Ib", "SOP 77.9 → 77.9"),
        Claim("PNP-Dq", "PNP-Iu", "SOP 76.3 → 80.1"),
        Claim("PNP-Dq", "Smooth-AP", "SOP 80.1 → 81.1 (batch 384)"),
        Claim("PNP-Dq, merged", "Smooth-AP, merged", "SOP 73.2 → 73.8, VehicleID 89.9 → 92.6"),
        Claim("PNP-Dq, merged", "PNP-Iu, merged", "SOP 67.5 → 73.8, VehicleID 86.9 → 92.6"),
        Claim("PNP-Dq, merged", "PNP-Ib, merged", "(the text names Ib, the tables Iu)"),
        Claim("PNP-Dq, merged", "PNP-O, merged", "(not in the paper)"),
    ]
    return Paper(
        "PNP: penalising negatives before positives (AAAI 2022)",
        "Decreasing weights (D) beat equal ones (O), which beat increasing ones (I); with every three training classes "
        "merged into one, Dq stays the best.",
        claims,
        "SOP and VehicleID, ResNet-50, all of it trained; their classes have few images, ours 20 to 80. Merging is in "
        "the order of the labels as text, which mostly puts neighbours of the list together: birds of one kind, cars "
        "of one maker, letters of one alphabet.",
    )


def _profs() -> Paper:
    claims = []
    for letter, baseline in _LOSSES.items():
        cub, cars = _PROFS[letter]
        numbers = f"CUB {cub}, Cars {cars}"
        claims.append(Claim(f"{letter}-PROFS", baseline, numbers))
        claims.append(Claim(f"{letter}-PROFS+HNCM", baseline, numbers))
    return Paper(
        "PROFS: alternating projections onto feasible sets (ICIP 2021)",
        "For six losses, projections (PROFS) beat the baseline, and hard negative class mining (HNCM) adds to it.",
        claims,
        "GoogLeNet, all of it trained for 100 epochs, the best epoch on the test classes reported. Here a run makes "
        "few projections (18 on CUB, 25 on Cars, 3 on the icons), and all CUB or Cars training classes nearly fit into "
        "one batch, so that HNCM has little to choose from.",
    )


def _mpa() -> Paper:
    numbers = {"MPA": ("69.2", "86.8"), "MPA-DW": ("68.9", "86.6"), "MPA-AP": ("69.1", "87.1")}
    claims = []
    for name, (cub, cars) in numbers.items():
        claims.append(Claim(name, "ProxyAnchor", f"CUB 68.6 → {cub}, Cars 86.1 → {cars}"))
        claims.append(Claim(name, "SoftTriple", f"CUB 67.6 → {cub}, Cars 86.0 → {cars}"))
    of_counts = {4: ("69.0", "86.1"), 8: ("69.1", "86.6"), 12: ("69.3", "86.5"), 16: ("67.6", "86.4")}
    claims += [
        Claim(f"MPA, K = {count}", "ProxyAnchor", f"K = 1 → {count}: CUB 68.4 → {cub}, Cars 86.0 → {cars}")
        for count, (cub, cars) in of_counts.items()
    ]
    claims.append(Claim("MPA, K = 8", "MPA, K = 16", "CUB 67.6 → 69.1, Cars 86.4 → 86.6"))
    return Paper(
        "Multi Proxy Anchor family (arXiv 2110.03997)",
        "MPA, MPA-DW and MPA-AP beat ProxyAnchor and SoftTriple; 8 to 12 proxies a class are best. With one proxy MPA "
        "is ProxyAnchor.",
        claims,
        "BN-Inception, all of it trained for 60 epochs. What several proxies gain depends on classes that look several "
        "ways and a network that can keep them apart; a linear layer can do so only as far as the features do. On "
        "Omniglot four epochs are too few for MPA-DW and MPA-AP (see above: with more epochs).",
    )


def _thsg() -> Paper:
    claims = [Claim(name, f"Triplet({miner})", _THSG[miner]) for miner, name in _MINERS.items()]
    claims += [
        Claim("THSG", "THSG without G2", "Cars 76.5 → 80.2"),
        Claim("THSG without G2", "THSG without G2 and category", "Cars 71.9 → 76.5"),
        Claim("THSG without G2 and category", "THSG without hard and category", "Cars 67.8 → 71.9"),
    ]
    return Paper(
        "THSG: two-stage hard sample generation (arXiv 2112.02259)",
        "Triplets with generated hard ones beat the same triplets without, for each of four minings; each part adds.",
        claims,
        "ResNet-50 or GoogLeNet, all of it trained for 150 epochs; heads have the 128 dimensions of its Tables 6 to 8, "
        "not 512. The generators need training of their own: here "
        "a run has 70 to 200 steps.",
    )


PAPERS = [_topk(), _pnp(), _profs(), _mpa(), _thsg()]
