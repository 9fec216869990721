"""What no paper asked: wrong labels, a long tail, and the papers' ideas together."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims.cells import Cell, queries_of
from benchmarks.claims.evidence import FEWEST_SEEDS, METRIC, difference
from benchmarks.claims.hypotheses import ROBUST, SINGLE, TOGETHER
from benchmarks.claims.page_words import mean_cell, signed, table
from benchmarks.claims.plan_list import Progress
from benchmarks.claims.rounds import ALL_HEADS
from benchmarks.claims.sets import SETS
from tophit.comparing.tuning import best_trial
from tophit.comparing.verdicts import judge, ranks

_CLEAN = ("cub-heads", "cars-heads")


def robustness(results: Path, progress: Progress) -> list[str]:
    """Return what wrong labels and a long tail cost each objective: the loss of recall@1 against clean labels."""
    parts = [
        "## Wrong labels and a long tail",
        "Training labels of which a share was replaced by another training class, validation classes included, or "
        "classes from all their images down to 4; test classes are clean. Each objective keeps the settings that its "
        "search found with clean labels; only the length of training is chosen again. So this shows what survives "
        "labels that nobody knew to be wrong, not what a search for them would save. What each objective loses against "
        "clean labels, in points of recall@1, with intervals adjusted for the objectives of a column.",
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
            parts.append(table(heads, rows))
    return [*parts, *_left(missing)]


def _losses(name: str, clean: str, results: Path) -> dict[str, str]:
    spreads = {each: difference(Cell(name, each, results), Cell(clean, each, results)) for each in ROBUST}
    there = {each: found for each, found in spreads.items() if found is not None}
    verdicts = dict(zip(there, judge(list(there.values()), planned=len(ROBUST)), strict=True))
    return {each: signed(verdicts[each].found) if each in verdicts else "" for each in ROBUST}


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
        "doubt. Objectives of rank 1 are bold: nothing was shown to be better. The last rows join two papers' ideas: "
        "multi-proxy and ranking loss in one (`MPA + PNP`), projections around a ranking loss, generation on top of a "
        "proxy loss.",
    ]
    if ranked:
        heads = ["objective", *(f"{SETS[name].title}: {_images_per_class(name, results)}" for name in ranked)]
        rows = [[each, *(_place(ranked[name].get(each)) for name in ranked)] for each in every]
        parts += [table(heads, rows), _everywhere(ranked), *_joined(list(ranked), results)]
    missing = progress.missing([Cell(name, each, results) for name in ALL_HEADS for each in every])
    return [*parts, *_left(missing)]


def _ranked(name: str, every: Sequence[str], results: Path) -> dict[str, tuple[float, int]]:
    """Return recall@1 and rank of the objectives that have the most seeds of a set; none with fewer than three."""
    cells = {each: Cell(name, each, results) for each in every}
    seeds = {each: set(cell.seeds()) for each, cell in cells.items()}
    there = [each for each in every if len(seeds[each]) >= FEWEST_SEEDS]
    common = sorted(set.intersection(*(seeds[each] for each in there))) if there else []
    if len(common) < FEWEST_SEEDS:
        return {}
    tables = {each: cells[each].table(common, METRIC) for each in there}
    return {each: (tables[each].mean, rank) for each, rank in ranks(tables).items()}


def _place(found: tuple[float, int] | None) -> str:
    if found is None:
        return ""
    text = f"{100 * found[0]:.1f} ({found[1]})"
    return f"**{text}**" if found[1] == 1 else text


def _images_per_class(name: str, results: Path) -> str:
    counts = queries_of(name, results)
    return f"{len(counts)} classes of {sum(counts) / len(counts):.0f}"


def _everywhere(ranked: dict[str, dict[str, tuple[float, int]]]) -> str:
    """Return the sentence that says which objectives have no better one on any set."""
    sets = f"all {len(ALL_HEADS)} sets" if len(ranked) == len(ALL_HEADS) else f"each of the {len(ranked)} sets so far"
    measured = [set(found) for found in ranked.values()]
    first = [each for each in set.intersection(*measured) if all(found[each][1] == 1 for found in ranked.values())]
    if not first:
        return f"None has rank 1 on {sets}."
    means = {each: sum(found[each][0] for found in ranked.values()) / len(ranked) for each in first}
    named = ", ".join(f"{each} ({100 * means[each]:.1f})" for each in sorted(first, key=lambda one: -means[one]))
    return f"Rank 1 on {sets}, with the mean recall@1: {named}."


def _joined(names: Sequence[str], results: Path) -> list[str]:
    """Return the objectives that join two ideas, against the single one that was best on validation classes."""
    rows = []
    for name in names:
        best = best_single(name, results)
        if best is None:
            continue
        spreads = [difference(Cell(name, each, results), Cell(name, best, results)) for each in TOGETHER]
        there = {each: found for each, found in zip(TOGETHER, spreads, strict=True) if found is not None}
        verdicts = dict(zip(there, judge(list(there.values()), planned=len(TOGETHER)), strict=True))
        cells = [
            f"{signed(verdicts[each].found)} {_word(verdicts[each].word)}" if each in verdicts else ""
            for each in TOGETHER
        ]
        if there:
            rows.append([SETS[name].title, f"{best} ({mean_cell(Cell(name, best, results))})", *cells])
    if not rows:
        return []
    return [
        "Two ideas against the single objective with the best recall@1 on the validation classes of its search, in "
        "points:",
        table(["set", "best single", *TOGETHER], rows),
    ]


def best_single(name: str, results: Path) -> str | None:
    """Return the objective of one idea whose search was best on validation classes; None without any."""
    values = {}
    for each in SINGLE:
        cell = Cell(name, each, results)
        best = [best_trial(cell.search(seed) or []) for seed in cell.seeds()]
        found = [trial["value"] for trial in best if trial is not None]
        if found:
            values[each] = sum(found) / len(found)
    return max(values, key=lambda each: values[each], default=None)


def _word(word: str) -> str:
    return {"supported": "**better**", "refuted": "**worse**"}.get(word, "undecided")


def _left(missing: int) -> list[str]:
    return [f"Not run yet: {missing} searches and runs."] if missing else []
