"""docs/claims.md: every claim on every data set, from the runs that are finished."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.claims.hypotheses import PAPERS, Claim, Paper
from benchmarks.claims.longer import LONGER
from tophit.comparing import Plan, Store
from tophit.comparing.statistics import ClassTable, Estimate, estimate, holm
from tophit.comparing.summary import common_seeds, table_of
from tophit.data.feature_files import features_of_rows
from tophit.data.folders import open_data
from tophit.evaluation import retrieval_metrics
from tophit.files import write_text

_DOUBT = 0.05
_YES, _NO, _OPEN = "**yes**", "**no**", "?"
_SEEDS = 10  # that the page is meant to have
_NOTE = {
    "cub": "a linear head to 512 on 256 components of frozen EfficientNet-Lite0 features, 224 pixels",
    "cars": "the same, cars cropped to their boxes",
    "icons": "the same at 64 pixels; the demo set",
    "omniglot": "every sixth training and tenth test character at 16 pixels; a small net trained from nothing",
}


class Set:
    """The finished runs of one data set, as tables of seeds x classes."""

    def __init__(self, store: Store, title: str, note: str) -> None:
        self.store, self.title, self.note = store, title, note
        self.plan: Plan = store.plan()
        self.seeds = common_seeds(list(self.plan.candidates), self.plan.budget.seeds, store)
        self._tables: dict[tuple[str, str], ClassTable] = {}

    def table(self, name: str, metric: str) -> ClassTable:
        """Return a candidate's table of a metric."""
        key = name, metric
        if key not in self._tables:
            self._tables[key] = table_of(self.store, name, self.seeds, metric)
        return self._tables[key]

    def difference(self, claim: Claim) -> Estimate:
        """Return by how much the one that is said to be better is better."""
        return estimate(self.table(claim.better, claim.metric) - self.table(claim.worse, claim.metric))

    def untrained(self) -> str:
        """Return the recall@1 of the features as they are, without a head; nothing for images."""
        file = self.plan.data["manifest"]
        if not file.endswith(".npz"):
            return ""
        test = open_data(file).where("test")
        return f"{100 * retrieval_metrics(features_of_rows(test.rows), test.labels)['recall@1']:.1f}"

    def minutes(self) -> float:
        """Return the processor minutes of all finished measured runs, without the search."""
        results = [
            self.store.result(name, seed) for name in self.plan.candidates for seed in range(self.plan.budget.seeds)
        ]
        return sum(result.get("processor_seconds", 0) for result in results if result) / 60


class Judged:
    """A paper's claims on every set: the differences found, and the verdicts, by the set's title."""

    def __init__(self, paper: Paper, sets: list[Set]) -> None:
        self.paper = paper
        self.found = {each.title: [each.difference(claim) for claim in paper.claims] for each in sets}
        self.verdicts = {each.title: _verdicts(self.found[each.title], len(each.seeds)) for each in sets}

    def by_claim(self) -> list[tuple[str, ...]]:
        """Return for each claim its verdicts on all sets."""
        return list(zip(*self.verdicts.values(), strict=True))


def write_report(stores: Mapping[str, Store], titles: Mapping[str, str], times: Path, path: Path) -> None:
    """Write the page; ``times`` says how long each round of runs took."""
    sets = [Set(store, titles[key], _NOTE[key]) for key, store in stores.items() if store.plan_path.is_file()]
    sets = [each for each in sets if each.seeds]
    judged = [Judged(paper, sets) for paper in PAPERS]
    lines = [*_head(sets), "", _time_taken(sets, times), *_unfinished(sets, list(titles.values())), "", *_short(judged)]
    lines += [line for each in sets for line in _longer(each)]
    for each in judged:
        lines += _section(each, sets)
    write_text(path, "\n".join(lines).rstrip() + "\n")
    print(f"Written: {path}")


def _head(sets: list[Set]) -> list[str]:
    lines = [
        "# The papers' claims, on data that can be run here",
        "",
        "Each of the five papers says that its method beats others. This page tests those sentences with many seeds on "
        "four sets, all on a CPU. It is not a reproduction of the papers' tables (`docs/reference/recipes.md` has "
        "recipes for those): backbone, resolution and training differ, as said below each table.",
        "",
        "Made by this command, which continues where it was stopped (`--report-only` writes the page from what is "
        "there); every number below comes from it, but for those of longer runs, which name their own command:",
        "",
        "```",
        "python -m benchmarks.claims --cub CUB.npz --cars CARS.npz --omniglot OMNIGLOT.npz --out runs/claims",
        "```",
        "",
        "| set | test classes, queries | seeds | epochs | trained | recall@1 untrained | processor minutes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in sets:
        counts = each.table("ProxyAnchor", "recall@1").counts
        budget = each.plan.budget
        lines.append(
            f"| {each.title} | {len(counts)}, {counts.sum():.0f} | {len(each.seeds)} | {budget.epochs} | {each.note} | "
            f"{each.untrained()} | {each.minutes():.0f} |"
        )
    return [
        *lines,
        "",
        "How: all candidates of a set have the same embedder, epochs and data; batches are the paper's where known. "
        "Losses have the papers' settings. A head's learning rate is the better of two for each candidate, by MAP@R on "
        "20% of the training classes; the small net has one rate for all. The last epoch is measured once on the test "
        "classes. A difference is taken seed by seed and class by class; its 95% interval is over seeds and classes "
        "(`docs/guides/compare.md`), with one seed over classes alone, and then no claim is decided.",
        "",
        "Not blind on CUB-200-2011: a first configuration (128 dimensions, lower rates) was seen on its test classes "
        "before these dimensions and the two rates were set. That one seed decides nothing was settled after a first "
        "page, too.",
        "",
        "The verdict of a claim on a set: **yes** (supported) or **no** (not supported: the opposite holds) where the "
        "p-value is at most 0.05 after Holm's adjustment for all claims of the paper on that set, else **?** "
        "(undecided). Differences are in points of the metric, in percent.",
    ]


def _time_taken(sets: list[Set], times: Path) -> str:
    rounds = [json.loads(line) for line in times.read_text().splitlines()] if times.is_file() else []
    minutes = sum(each["seconds"] for each in rounds) / 60
    workers = max((each["workers"] for each in rounds), default=0)
    runs = sum(len(each.seeds) * len(each.plan.candidates) for each in sets)
    took = f"Finished rounds took {minutes:.0f} minutes with {workers} workers, " if rounds else ""
    used = sum(each.minutes() for each in sets)
    return f"{took}{runs} measured runs are below; they used {used:.0f} processor minutes, without the search."


def _unfinished(sets: list[Set], titles: list[str]) -> list[str]:
    """Return a paragraph on what is still to be run; nothing if all sets have ten seeds."""
    seeds = {each.title: len(each.seeds) for each in sets}
    left = [f"{title} has {seeds.get(title, 0)}" for title in titles if seeds.get(title, 0) < _SEEDS]
    if not left:
        return []
    return [
        "",
        f"**Not finished:** of {_SEEDS} seeds {', '.join(left)}. With so few, intervals are wide and most "
        "verdicts open; the same command goes on.",
    ]


def _short(judged: list[Judged]) -> list[str]:
    """Return the overview: how the claims of each paper came out over all sets, and those that are safest."""
    tally = Counter(mark for each in judged for marks in each.verdicts.values() for mark in marks)
    lines = [
        "## In short",
        "",
        f"Of {tally.total()} verdicts {tally[_YES]} support a claim, {tally[_NO]} say the opposite, {tally[_OPEN]} are "
        "open. By paper, over all sets:",
        "",
        "| paper | claims | supported, nowhere the opposite | some of both | the opposite, nowhere supported | open |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    safe = []
    for each in judged:
        marks = each.by_claim()
        kinds = Counter((_YES in found, _NO in found) for found in marks)
        order = [(True, False), (True, True), (False, True), (False, False)]
        counts = [str(kinds[kind]) for kind in order]
        lines.append(f"| {each.paper.title} | {len(marks)} | " + " | ".join(counts) + " |")
        safe += [
            _name(claim)
            for claim, found in zip(each.paper.claims, marks, strict=True)
            if found.count(_YES) > len(found) / 2 and _NO not in found
        ]
    listed = "; ".join(safe) if safe else "none"
    return [*lines, "", f"Supported on most sets and the opposite on none: {listed}.", ""]


def _longer(found: Set) -> list[str]:
    """Return a table of the candidates that were trained for longer, if there are any."""
    path = found.store.folder / LONGER
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows = {line["candidate"]: line for line in lines}.values()  # the last time counts
    epochs = found.plan.budget.epochs
    return [
        f"## With more epochs on {found.title}",
        "",
        f"A net that begins from nothing is far from trained after {epochs} epochs, so a loss that learns slowly looks "
        "worse than it is. Mean recall@1 of the first seeds (`python -m benchmarks.claims.longer "
        f"runs/claims/{found.store.folder.name} --epochs N --candidates …`); too few for verdicts:",
        "",
        f"| candidate | seeds | after {epochs} epochs | after more |",
        "| --- | --- | --- | --- |",
        *(
            f"| {row['candidate']} | {row['seeds']} | {100 * row['before']:.1f} | "
            f"{100 * row['after']:.1f} after {row['epochs']} |"
            for row in rows
        ),
        "",
    ]


def _name(claim: Claim) -> str:
    return f"{claim.better} > {claim.worse}" + ("" if claim.metric == "recall@1" else f" ({claim.metric})")


def _section(judged: Judged, sets: list[Set]) -> list[str]:
    paper, found, verdicts = judged.paper, judged.found, judged.verdicts
    heads = ["claim", *found, "the paper"]
    lines = [
        f"## {paper.title}",
        "",
        paper.says,
        "",
        "| " + " | ".join(heads) + " |",
        "| --- |" + " --- |" * (len(heads) - 1),
    ]
    for number, claim in enumerate(paper.claims):
        cells = [f"{_signed(found[title][number])} {verdicts[title][number]}" for title in found]
        lines.append("| " + " | ".join([_name(claim), *cells, claim.paper]) + " |")
    words = {_YES: "supported", _NO: "not supported", _OPEN: "undecided"}
    summary = []
    for title, each in verdicts.items():
        counts = [f"{each.count(mark)} {word}" for mark, word in words.items() if mark in each]
        summary.append(f"{title}: {', '.join(counts)}")
    means = _means(paper, sets)
    return [*lines, "", ". ".join(summary) + ".", "", f"In the paper: {paper.differs}", "", *means, ""]


def _means(paper: Paper, sets: list[Set]) -> list[str]:
    """Return the recall@1 of every candidate of a paper's claims, folded away."""
    names = list(dict.fromkeys(name for claim in paper.claims for name in (claim.worse, claim.better)))
    lines = ["<details><summary>recall@1 of each, mean over seeds</summary>", ""]
    lines += ["| | " + " | ".join(each.title for each in sets) + " |", "| --- |" + " --- |" * len(sets)]
    for name in names:
        cells = [f"{100 * each.table(name, 'recall@1').mean:.1f}" for each in sets]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, "", "</details>"]


def _verdicts(estimates: list[Estimate], seeds: int) -> list[str]:
    """Return the verdict of each claim; one seed decides nothing, since it does not show how seeds differ."""
    adjusted = holm([each.p for each in estimates])
    return [
        _OPEN if p > _DOUBT or seeds < 2 else _YES if each.mean > 0 else _NO
        for each, p in zip(estimates, adjusted, strict=True)
    ]


def _signed(found: Estimate) -> str:
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
