"""What no paper asked: wrong labels, a long tail, and the papers' ideas together."""

from pathlib import Path

from benchmarks.claims.cells import Cell
from benchmarks.claims.evidence import difference
from benchmarks.claims.hypotheses import FIRST, ROBUST, TOGETHER
from benchmarks.claims.page_words import mean_cell, signed, table
from benchmarks.claims.plan_list import Progress
from benchmarks.claims.sets import SETS
from tophit.comparing.tuning import best_trial
from tophit.comparing.verdicts import judge

_CLEAN = ("cub-heads", "cars-heads")
_COMBINED = ("cub-heads", "cars-heads", "emoji", "cub-photos")


def robustness(results: Path, progress: Progress) -> list[str]:
    """Return what wrong labels and a long tail cost each objective: the loss of recall@1 against clean labels."""
    parts = [
        "## Wrong labels and a long tail",
        "The same protocol on training labels of which a share was replaced by another training class, validation "
        "classes included, or with classes from all their images down to 4; test classes are clean. What each "
        "objective loses against clean labels, with intervals adjusted for the objectives of a column.",
    ]
    missing = 0
    for clean in _CLEAN:
        changed = [name for name in SETS if name.startswith(f"{clean}-")]
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


def together(results: Path, progress: Progress) -> list[str]:
    """Return objectives that join two papers' ideas, against the best single one of each set."""
    parts = [
        "## The papers' ideas together",
        "Multi-proxy and ranking loss in one (`MPA + PNP`), projections around a ranking loss, generation on top of a "
        "proxy loss: each against the single objective with the best recall@1 on the validation classes of its search.",
    ]
    rows = []
    for name in _COMBINED:
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
    if rows:
        parts.append(table(["set", "best single", *TOGETHER], rows))
    missing = progress.missing([Cell(name, each, results) for name in _COMBINED for each in TOGETHER])
    return [*parts, *_left(missing)]


def best_single(name: str, results: Path) -> str | None:
    """Return the first table's objective whose search was best on validation classes; None without any."""
    values = {}
    for each in FIRST[SETS[name].regime]:
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
