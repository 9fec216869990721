"""What no paper asked: wrong labels, a long tail, and the papers' ideas together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claims.cells import Cell, queries_of
from benchmarks.claims.evidence import FEWEST_SEEDS, METRIC, difference
from benchmarks.claims.hypotheses import PAPERS, ROBUST, SINGLE, TOGETHER, Claim
from benchmarks.claims.page_words import mean_cell, signed, table
from benchmarks.claims.plan_list import Progress
from benchmarks.claims.rounds import ALL_HEADS
from benchmarks.claims.sets import SETS
from tophit.comparing.statistics import TableSpread, spread
from tophit.comparing.tuning import best_trial
from tophit.comparing.verdicts import Pair, Verdict, judge, judge_pairs, ranks

_CLEAN = ("cub-heads", "cars-heads")
_ROBUST_CLAIMS = tuple(claim for paper in PAPERS if {(claim := paper.main["c"]).better, claim.worse} <= set(ROBUST))


def robustness(results: Path, progress: Progress) -> list[str]:
    """Return what wrong labels and a long tail cost each objective: the loss of recall@1 against clean labels."""
    parts = [
        "## Wrong labels and a long tail",
        "Training labels of which a share was replaced by another training class, validation classes included, or "
        "classes from all their images down to 4; test classes are clean. Each objective keeps the settings that its "
        "search found with clean labels; only the length of training is chosen again. So this shows what survives "
        "labels that nobody knew to be wrong, not what a search for them would save. The wrong labels are one draw, "
        "the same for all seeds, so no interval speaks of another draw. What each objective loses against clean "
        "labels, in points of recall@1, with intervals adjusted for the objectives of a column:",
    ]
    missing = 0
    for clean in _CLEAN:
        changed = [name for name, each in SETS.items() if each.clean == clean]
        missing += progress.missing([Cell(name, each, results) for name in changed for each in ROBUST])
        columns = {name: _losses(name, clean, results) for name in changed}
        shown = [name for name in changed if any(columns[name].values())]
        if shown:
            rows = [
                [
                    each,
                    mean_cell(Cell(clean, each, results)) if Cell(clean, each, results).seeds() else "",
                    *(columns[name][each] for name in shown),
                ]
                for each in ROBUST
            ]
            heads = [SETS[clean].title, "clean", *(SETS[name].title.rpartition(", ")[2] for name in shown)]
            parts += [table(heads, rows), *_against_baselines(clean, shown, results)]
    return [*parts, *_left(missing)]


def _losses(name: str, clean: str, results: Path) -> dict[str, str]:
    spreads = {each: difference(Cell(name, each, results), Cell(clean, each, results)) for each in ROBUST}
    there = {each: found for each, found in spreads.items() if found is not None}
    verdicts = dict(zip(there, judge(list(there.values()), planned=len(ROBUST)), strict=True))
    return {each: signed(verdicts[each].found) if each in verdicts else "" for each in ROBUST}


def _against_baselines(clean: str, changed: Sequence[str], results: Path) -> list[str]:
    """Return by how much more a paper's method keeps than its baseline, each method in a row."""
    columns: dict[str, dict[Claim, str]] = {}
    for name in changed:
        spreads = {claim: _kept_more(claim, name, clean, results) for claim in _ROBUST_CLAIMS}
        there = {claim: found for claim, found in spreads.items() if found is not None}
        verdicts = judge(list(there.values()), planned=len(_ROBUST_CLAIMS))
        columns[name] = {claim: signed(one.found) for claim, one in zip(there, verdicts, strict=True)}
    if not any(columns.values()):
        return []
    rows = [[claim.name, *(columns[name].get(claim, "") for name in changed)] for claim in _ROBUST_CLAIMS]
    heads = [SETS[clean].title, *(SETS[name].title.rpartition(", ")[2] for name in changed)]
    return [
        "Does a method keep more than its baseline? The method's change less the baseline's, in points; above 0 it "
        "survives better:",
        table(heads, rows),
    ]


def _kept_more(claim: Claim, name: str, clean: str, results: Path) -> TableSpread | None:
    cells = [Cell(place, each, results) for place in (name, clean) for each in (claim.better, claim.worse)]
    seeds = sorted(set.intersection(*(set(cell.seeds()) for cell in cells)))
    if len(seeds) < FEWEST_SEEDS:
        return None
    better, worse, clean_better, clean_worse = (cell.table(seeds, METRIC) for cell in cells)
    return spread((better - worse) - (clean_better - clean_worse))


def choosing(results: Path, progress: Progress) -> list[str]:
    """Return which objectives have no better one on each of four sets, and whether two ideas beat the best of one."""
    every = (*SINGLE, *TOGETHER)
    ranked = {name: found for name in ALL_HEADS if (found := _ranked(name, every, results))}
    parts = [
        "## Which objective to begin with",
        "Heads of frozen features that begin at plain principal components, with the same search for all. What the "
        "default recipe gives, with a start that is whitened within classes and nothing searched, is "
        "[another page](benchmarks/default-head.md), which `tophit plan` follows. "
        "Recall@1 in percent, and in brackets the rank: one more than the number of objectives that are better beyond "
        "doubt. Objectives of rank 1 are bold: nothing was shown to be better, which with three seeds favours those "
        "whose results vary most. The last rows join two papers' ideas: "
        "multi-proxy and ranking loss in one (`MPA + PNP`), projections around a ranking loss, generation on top of a "
        "proxy loss.",
    ]
    if ranked:
        heads = ["objective", *(f"{SETS[name].title}: {_images_per_class(name, results)}" for name in ranked)]
        rows = [[each, *(_place(found, each) for found in ranked.values())] for each in every]
        parts += [table(heads, rows), _everywhere(ranked), *_joined(ranked, results)]
    missing = progress.missing([Cell(name, each, results) for name in ALL_HEADS for each in every])
    return [*parts, *_left(missing)]


@dataclass(frozen=True)
class Ranking:
    """Recall@1 and rank of the objectives of a set, and the verdicts on all pairs, which the ranks follow from."""

    means: dict[str, float]
    ranks: dict[str, int]
    verdicts: dict[Pair, Verdict]


def _ranked(name: str, every: Sequence[str], results: Path) -> Ranking | None:
    """Rank the objectives of a set over the seeds that all have; None with fewer than three."""
    cells = {each: Cell(name, each, results) for each in every}
    seeds = {each: set(cell.seeds()) for each, cell in cells.items()}
    there = [each for each in every if len(seeds[each]) >= FEWEST_SEEDS]
    common = sorted(set.intersection(*(seeds[each] for each in there))) if there else []
    if len(common) < FEWEST_SEEDS:
        return None
    tables = {each: cells[each].table(common, METRIC) for each in there}
    verdicts = judge_pairs(tables)
    return Ranking({each: found.mean for each, found in tables.items()}, ranks(tables, verdicts), verdicts)


def _place(found: Ranking, name: str) -> str:
    if name not in found.ranks:
        return ""
    text = f"{100 * found.means[name]:.1f} ({found.ranks[name]})"
    return f"**{text}**" if found.ranks[name] == 1 else text


def _images_per_class(name: str, results: Path) -> str:
    counts = queries_of(name, results)
    return f"{len(counts)} classes of {sum(counts) / len(counts):.0f}"


def _everywhere(ranked: dict[str, Ranking]) -> str:
    """Return the sentence that says which objectives have no better one on any set."""
    sets = f"all {len(ALL_HEADS)} sets" if len(ranked) == len(ALL_HEADS) else f"each of the {len(ranked)} sets so far"
    first = [each for each in (*SINGLE, *TOGETHER) if all(found.ranks.get(each) == 1 for found in ranked.values())]
    return f"Rank 1 on {sets}: {', '.join(first) or 'none'}."


def _joined(ranked: dict[str, Ranking], results: Path) -> list[str]:
    """Return the objectives that join two ideas, against the single one that was best on validation classes."""
    rows = []
    for name, found in ranked.items():
        best = best_single(name, results)
        if best is None or best not in found.ranks:
            continue
        verdicts = [found.verdicts.get((each, best)) for each in TOGETHER]
        cells = ["" if one is None else f"{signed(one.found)} {_word(one.word)}" for one in verdicts]
        rows.append([SETS[name].title, f"{best} ({100 * found.means[best]:.1f})", *cells])
    if not rows:
        return []
    return [
        "Two ideas against the single objective with the best recall@1 on the validation classes of its search, in "
        "points, by the same verdicts as the ranks:",
        table(["set", "best single", *TOGETHER], rows),
    ]


def best_single(name: str, results: Path) -> str | None:
    """Return the objective of one idea whose searches were best on validation classes; None without any.

    Over the seeds that all have: each seed holds out other classes, and some are easier than others.
    """
    cells = {each: Cell(name, each, results) for each in SINGLE}
    cells = {each: cell for each, cell in cells.items() if cell.seeds()}
    common = set.intersection(*(set(cell.seeds()) for cell in cells.values())) if cells else set()
    values = {
        each: [best["value"] for seed in sorted(common) if (best := best_trial(cell.search(seed) or [])) is not None]
        for each, cell in cells.items()
    }
    return max((each for each in values if values[each]), key=lambda each: sum(values[each]), default=None)


def _word(word: str) -> str:
    return {"supported": "**better**", "refuted": "**worse**"}.get(word, "undecided")


def _left(missing: int) -> list[str]:
    return [f"Not run yet: {missing} searches and runs."] if missing else []
