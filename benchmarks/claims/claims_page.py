"""The page docs/claims.md, made from the results in the repository without running anything."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims.cells import RESULTS, VALIDATION_SHARE, Cell, queries_of, untrained_of
from benchmarks.claims.evidence import CORE, FEWEST_SEEDS, Judged, claims_on, first_table, sets_of
from benchmarks.claims.further_pages import choosing, robustness
from benchmarks.claims.hypotheses import PAPERS, Claim, Paper
from benchmarks.claims.page_words import mean_cell, points, signed, table
from benchmarks.claims.plan_list import Progress
from benchmarks.claims.rounds import planned_seeds
from benchmarks.claims.searches import at_papers_values, edges, is_cut, rate_of
from benchmarks.claims.sets import REGIMES, SETS
from tophit.comparing.tuning import best_trial
from tophit.files import write_text

_TEXTS = Path(__file__).parent / "texts"


def write_page(path: Path, results: Path = RESULTS) -> None:
    """Write the page."""
    progress = Progress(results)
    parts = [
        "# The papers' claims, tested",
        _text("begin.md"),
        *_first(results, progress),
        _text("how_measured.md"),
        *_sets(results, progress),
        *(line for paper in PAPERS for line in _details(paper, results, progress)),
        *choosing(results, progress),
        *robustness(results, progress),
    ]
    write_text(path, "\n\n".join(parts) + "\n")
    print(f"Written: {path}")


def _text(name: str) -> str:
    """Return a part of the page that no result changes."""
    found = (_TEXTS / name).read_text(encoding="utf-8").strip()
    return found.format(verdicts=len(PAPERS) * len(REGIMES), held_out=f"{100 * VALIDATION_SHARE:.0f}%")


def _first(results: Path, progress: Progress) -> list[str]:
    judged = first_table(results)
    heads = ["", *(f"({regime}) {title}" for regime, title in REGIMES.items())]
    rows = [
        [f"**{paper.title}**", *(_first_cell(judged[paper.title, regime], results, progress) for regime in REGIMES)]
        for paper in PAPERS
    ]
    counts: dict[str, int] = {}
    for each in judged.values():
        word = "not run yet" if each.verdict is None else each.verdict.word
        counts[word] = counts.get(word, 0) + 1
    order = ("supported", "refuted", "undecided", "not run yet")
    short = ", ".join(f"{counts[word]} {word}" for word in order if word in counts)
    waiting, hours = progress.left(list(progress.taken))
    return [
        "## Verdicts",
        f"{len(judged)} verdicts: {short}. Differences are in points of recall@1, with their interval; *sees* is the "
        "smallest gain that would have been found with a probability of 80%; *paper* is the paper's own gain.",
        table(heads, rows),
        f"{progress.hours():.1f} processor hours so far; {waiting} of {len(progress.taken)} searches and runs are not "
        f"run yet, about {hours:.0f} processor hours.",
    ]


def _first_cell(judged: Judged, results: Path, progress: Progress) -> str:
    names = (judged.claim.better, judged.claim.worse)
    missing = progress.missing([Cell(name, each, results) for name in judged.missing for each in names])
    if judged.verdict is None:
        return f"{judged.claim.name}<br>not run yet ({missing} searches and runs)"
    without = ", ".join(SETS[name].title for name in judged.missing)
    left = f", without {without}: not run yet" if judged.missing else ""
    return f"{judged.claim.name}<br>{_judged(judged)}{left}"


def _judged(judged: Judged) -> str:
    """Return power, gain, the paper's gain and the verdict of a claim."""
    verdict = judged.verdict
    if verdict is None:
        return "not run yet"
    own = all(SETS[name].like in judged.claim.gains for name in judged.sets)
    paper = "" if judged.gain is None else f"; paper {points(judged.gain)}{'' if own else '*'}"
    found = verdict.found
    word = f"**{verdict.word}**"
    if verdict.word == "supported" and verdict.is_small:
        word += ", but less than half of the paper's gain"
    if verdict.word == "undecided":
        word += f" ({_would_decide(verdict.seeds_needed, judged.sets)})"
    planned = min(
        planned_seeds(name, each) for name in judged.sets for each in (judged.claim.better, judged.claim.worse)
    )
    if judged.seeds < planned:
        word += f" so far, with {judged.seeds} of {planned} seeds"
    elif judged.missing:
        word += " so far"
    return f"sees {100 * verdict.detectable:.1f}; {signed(found)}{paper}<br>{word}"


def _would_decide(needed: int | None, names: Sequence[str]) -> str:
    if needed is None:
        return "more seeds alone would not decide"
    most = min(SETS[name].most_seeds for name in names)
    return f"{needed} seeds would decide" + (f", of which there are {most}" if needed > most else "")


def _sets(results: Path, progress: Progress) -> list[str]:
    rows = []
    for name in CORE:
        each = SETS[name]
        queries = queries_of(name, results)
        mine = [piece for piece in progress.taken if piece.cell.set == name]
        waiting, hours = progress.left(mine)
        before = untrained_of(name, results)
        cells = list(dict.fromkeys(piece.cell for piece in mine if piece.cell.base is None))
        best = [100 * cell.table(cell.seeds(), "recall@1").mean for cell in cells if len(cell.seeds()) >= FEWEST_SEEDS]
        rows.append(
            [
                f"({each.regime}) {each.title}",
                each.note,
                f"{len(queries)}, {sum(queries):,}" if queries else "",
                "" if before is None else f"{100 * before:.1f}",
                f"{max(best):.1f}" if best else "",
                edges(name, cells),
                f"{each.trials}",
                f"{each.epochs}, {each.patience}",
                f"{progress.hours(mine):.1f}" if waiting < len(mine) else "",
                f"{waiting} of {len(mine)} ({hours:.1f} h)" if waiting else "all run",
            ]
        )
    heads = [
        "set",
        "what learns",
        "test classes, queries",
        "untrained",
        "best mean of any objective",
        "best trials at an edge",
        "trials for each seed",
        "most epochs, patience",
        "processor hours",
        "not run yet",
    ]
    return ["### The sets", table(heads, rows)]


def _details(paper: Paper, results: Path, progress: Progress) -> list[str]:
    main = tuple(dict.fromkeys(paper.main.values()))
    parts = [
        f"## {paper.title}",
        f"{paper.says} In the paper: {paper.trained}.",
        *_claims_table(paper, (*main, *paper.further), results, progress),
        *_at_papers_values(paper, results),
    ]
    if paper.ablations:
        parts += [
            "Its ablations, each with the settings that the search of its base found:",
            *_claims_table(paper, paper.ablations, results, progress),
        ]
    return [*parts, *_settings(paper, results)]


def _at_papers_values(paper: Paper, results: Path) -> list[str]:
    """Say what the main claim's difference would be if neither side had searched more than its rate."""
    found: dict[str, list[str]] = {}
    for regime, claim in paper.main.items():
        for name in sets_of(regime):
            value = at_papers_values(claim, name, results)
            if value is not None:
                found.setdefault(claim.name, []).append(f"{SETS[name].title} {points(value)}")
    if not found:
        return []
    each = "; ".join(f"{name}: {', '.join(values)}" for name, values in found.items())
    return [f"With the paper's values on both sides and only the rate searched, on the validation classes: {each}."]


def _claims_table(paper: Paper, claims: Sequence[Claim], results: Path, progress: Progress) -> list[str]:
    """Return claims x sets, without sets on which nothing is run yet."""
    judged = {name: claims_on(paper, _of_regime(paper, claims, name), name, results) for name in CORE}
    shown = {name: {each.claim: each for each in found} for name, found in judged.items()}
    there = [name for name, found in judged.items() if any(each.verdict for each in found)]
    cells = [Cell(name, each, results) for name in CORE for claim in claims for each in (claim.better, claim.worse)]
    missing = progress.missing(list(dict.fromkeys(cells)))
    left = [f"Not run yet: {missing} searches and runs."] if missing else []
    if not there:
        return left
    rows = []
    for claim in claims:
        notes = f" ({claim.note})" if claim.note else ""
        cells_of = [_judged(shown[name][claim]) if claim in shown[name] else "" for name in there]
        if any(cell not in ("", "not run yet") for cell in cells_of):
            rows.append([f"{claim.name}{notes}", *cells_of])
    return [table(["claim", *(SETS[name].title for name in there)], rows), *left]


def _of_regime(paper: Paper, claims: Sequence[Claim], name: str) -> list[Claim]:
    """Leave out main claims of other regimes: a paper may claim another thing for sets with few images per class."""
    elsewhere = set(paper.main.values()) - {paper.main[SETS[name].regime]}
    return [claim for claim in claims if claim not in elsewhere]


def _settings(paper: Paper, results: Path) -> list[str]:
    """Return recall@1 of each candidate and the settings that its search found, folded away."""
    claims = (*paper.main.values(), *paper.further, *paper.ablations)
    names = list(dict.fromkeys(name for claim in claims for name in (claim.worse, claim.better)))
    rows = []
    for name in names:
        for place in CORE:
            cell = Cell(place, name, results)
            if cell.seeds():
                found = "<br>".join(_found(cell, seed) for seed in cell.seeds())
                rows.append([name, SETS[place].title, mean_cell(cell), str(len(cell.seeds())), found])
    if not rows:
        return []
    shown = table(["candidate", "set", "recall@1", "seeds", "settings found, by seed"], rows)
    return [f"<details><summary>Means over seeds, and settings found</summary>\n\n{shown}\n\n</details>"]


def _found(cell: Cell, seed: int) -> str:
    """Return the settings of the best trial of a seed's search in a few words."""
    best = best_trial(cell.search(seed) or [])
    if best is None:
        return ""
    own = [
        f"{path.rpartition('.')[2]} {_short(value)}" for path, value in best["settings"].items() if path != "optimizer"
    ]
    cut = " (the most allowed)" if is_cut(cell.set, best) else ""
    return ", ".join([f"rate {rate_of(best):g}", *own, f"{best['best_epoch']} epochs{cut}"])


def _short(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {each:g}" for key, each in value.items())
    return f"{value:g}" if isinstance(value, int | float) else str(value)
