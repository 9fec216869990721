"""The papers' claims: a fair plan, results that survive, and a page that follows from them."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from benchmarks.claims import running, sets
from benchmarks.claims.cells import Cell
from benchmarks.claims.claims_page import write_page
from benchmarks.claims.evidence import CORE, difference, first_table, sets_of
from benchmarks.claims.hypotheses import FIRST, PAPERS, TOGETHER
from benchmarks.claims.page_words import points
from benchmarks.claims.rounds import ROUNDS, Round
from benchmarks.claims.sets import SETS, long_tailed, mislabelled

from tophit.comparing import Store
from tophit.comparing.plan import EPOCHS, recipe_of
from tophit.comparing.tuning import slots_of
from tophit.data.feature_files import FeatureFile
from tophit.training import train

TOY = "cub-heads"


def planned_cells(results: Path) -> list[Cell]:
    """Return every cell of the plan once."""
    cells = (cell for each in ROUNDS for name in each.sets for cell in each.cells(name, results))
    return list(dict.fromkeys(cells))


def keep_trials(cell: Cell, seed: int = 0) -> None:
    """Write the search of a seed: every combination of settings, of which the last is the best."""
    search = cell.plan("data", seed).candidates[cell.candidate].search
    combinations = product(*(values for values in search.values() if isinstance(values, list)))
    trials = [
        {"settings": dict(zip(search, values, strict=True)), "value": 0.01 * number, "state": "complete"}
        for number, values in enumerate(combinations)
    ]
    cell.keep_search(seed, [{**trial, "best_epoch": 3, "processor_seconds": 1.0} for trial in trials])


def test_every_candidate_of_a_set_gets_the_same_number_of_trials_and_the_same_rates(tmp_path: Path) -> None:
    cells = planned_cells(tmp_path)
    assert len({(cell.set, cell.digest) for cell in cells}) == len(cells)
    for cell in cells:
        if cell.base is not None:
            continue
        plan = cell.plan("data", 0)
        candidate = plan.candidates[cell.candidate]
        found = SETS[cell.set]
        assert slots_of(candidate, plan.budget) == len(found.rates) * found.values
        rates = candidate.search["optimizer"]
        assert isinstance(rates, list)
        assert tuple(rate["head"]["lr"] for rate in rates) == found.rates
        assert all(rate["backbone"]["lr"] == rate["head"]["lr"] for rate in rates)


def test_an_ablation_and_changed_labels_keep_what_the_search_of_their_base_found(tmp_path: Path) -> None:
    cells = [cell for cell in planned_cells(tmp_path) if cell.base is not None]
    assert {cell.candidate for cell in cells} >= {"MPA, K = 4", "M-PROFS, M = 5", "THSG without G2"}
    assert {cell.set for cell in cells} >= {"cub-heads-noise20", "cars-heads-tail"}
    for cell in cells:
        base = cell.base
        assert base is not None
        assert base.base is None
        if base.search(0) is None:
            assert not cell.is_ready(0)
            keep_trials(base)
        assert cell.is_ready(0)
        plan = cell.plan("data", 0)
        assert slots_of(plan.candidates[cell.candidate], plan.budget) == cell.trials == 1
        settings = (base.search(0) or [])[-1]["settings"]
        mine = {path: values[0] for path, values in plan.candidates[cell.candidate].search.items()}  # pyright: ignore
        assert mine.items() <= settings.items()
        assert set(settings) - set(mine) <= {"loss.proxies_per_class"}  # what the ablation itself sets
    four = Cell("cub-heads", "MPA, K = 4", tmp_path).plan("data", 0)
    settings = {path: values[0] for path, values in four.candidates["MPA, K = 4"].search.items()}  # pyright: ignore
    assert recipe_of(four, "MPA, K = 4", 0, settings | {EPOCHS: 1}).loss.proxies_per_class == 4  # pyright: ignore


def test_a_candidate_and_its_baseline_have_the_same_batches() -> None:
    for paper in PAPERS:
        for regime, claim in paper.main.items():
            one, other = (
                Cell(sets_of(regime)[0], name).plan("data", 0).candidates[name].change["batches"]
                for name in (claim.better, claim.worse)
            )
            assert one == other


def test_the_first_tables_candidates_are_planned_on_every_set_of_their_regime() -> None:
    planned = {(cell.set, cell.candidate) for each in ROUNDS for name in each.sets for cell in each.cells(name)}
    assert {(name, each) for name in CORE for each in FIRST[SETS[name].regime]} <= planned


def plant(results: Path, out: Path, name: str, candidate: str, gain: float, seeds: int = 4) -> None:
    """Write measured runs of a candidate whose queries are hits with a planted rate."""
    generator = np.random.default_rng(len(candidate))
    cell = Cell(name, candidate, results)
    store = Store(out / name / candidate)
    labels = np.repeat(np.arange(40), 50)
    hard = np.random.default_rng(0).uniform(size=len(labels))
    for seed in range(seeds):
        hits = (hard + 0.03 * generator.normal(size=len(labels)) < 0.5 + gain).astype(np.float32)
        result = {"settings": {}, "steps": 3, "seconds": 1.0, "processor_seconds": 1.0, "peak_memory": 1}
        store.write_result(candidate, seed, result, {"recall@1": hits, "MAP@R": hits / 3, "labels": labels})
        cell.keep_run(seed, store)


def test_the_page_says_what_was_planted_and_what_is_missing(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name in sets_of("c"):
        for candidate in FIRST["c"]:
            gain = {"THSG": 0.08, "Smooth-AP": 0.05}.get(candidate, 0.0)
            plant(results, tmp_path / "runs", name, candidate, gain)
    plant(results, tmp_path / "runs", "emoji", "THSG", 0.0, seeds=2)
    plant(results, tmp_path / "runs", "emoji", "Triplet(R)", 0.0, seeds=2)
    judged = {
        (paper, regime): None if each.verdict is None else each.verdict.word
        for (paper, regime), each in first_table(results).items()
    }
    words = {paper.title.partition(":")[0].partition(" ")[0]: judged[paper.title, "c"] for paper in PAPERS}
    assert words == {
        "Sampling": "refuted",
        "PNP": "refuted",
        "PROFS": "refuted",
        "Multi": "undecided",
        "THSG": "supported",
    }
    assert all(word is None for (_, regime), word in judged.items() if regime != "c")  # two seeds decide nothing
    write_page(tmp_path / "claims.md", results)
    page = (tmp_path / "claims.md").read_text()
    assert "15 verdicts: 1 supported, 3 refuted, 1 undecided, 10 not run yet" in page
    gain = difference(Cell(TOY, "THSG", results), Cell(TOY, "Triplet(R)", results))
    assert gain is not None
    assert 0.06 < gain.mean < 0.1
    assert points(gain.mean) in page
    assert "{" not in page


def test_a_result_is_the_table_of_its_run_and_of_one_plan_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path / "results", tmp_path / "runs", TOY, "MPA", 0.1, seeds=2)
    cell = Cell(TOY, "MPA", tmp_path / "results")
    values, _ = Store(tmp_path / "runs" / TOY / "MPA").per_query("MPA", 1, "MAP@R")
    assert cell.table([1], "MAP@R").mean == pytest.approx(float(values.mean()), abs=1e-4)
    assert cell.seeds() == [0, 1]
    assert max(path.stat().st_size for path in cell.folder.iterdir()) < 4000
    monkeypatch.setitem(sets.SETS, TOY, replace(SETS[TOY], patience=99))
    assert cell.seeds() == []  # another protocol: as if it had never run
    assert Cell(TOY, "MPA", tmp_path / "results").run(0) is None


def toy_features(folder: Path) -> None:
    """Write features of 24 classes in the place of the toy set's."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 12)
    features = generator.normal(size=(24, 300))[labels] + generator.normal(size=(len(labels), 300))
    file = folder / SETS[TOY].source
    file.parent.mkdir(parents=True)
    np.savez(file, features=features.astype(np.float32), labels=labels)


def test_one_by_one_tries_the_rates_and_then_the_other_values_at_the_best_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_features(tmp_path / "data")
    short = replace(SETS[TOY], rates=(1e-4, 1e-2), values=3, epochs=2, patience=1, one_by_one=True)
    monkeypatch.setitem(sets.SETS, TOY, short)
    cell = Cell(TOY, "ProxyAnchor", tmp_path / "results")
    for kind in ("search", "seed"):
        if kind == "seed":
            shutil.rmtree(tmp_path / "out" / "runs")  # another machine has only the results
        assert running.do_piece(running.Piece(cell, kind, 0), tmp_path / "data", tmp_path / "out")
    trials = cell.search(0) or []
    tried = [(trial["settings"]["optimizer"]["head"]["lr"], trial["settings"]["loss.margin"]) for trial in trials]
    better = max(trials[:2], key=lambda trial: trial["value"])["settings"]["optimizer"]["head"]["lr"]
    assert tried == [(1e-4, 0.1), (1e-2, 0.1), (better, 0.0), (better, 0.2)]
    assert len(tried) == cell.trials
    best = max(trials, key=lambda trial: trial["value"])
    assert (cell.run(0) or {})["settings"] == best["settings"] | {EPOCHS: best["best_epoch"]}


def test_a_killed_run_goes_on_and_nothing_is_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_features(tmp_path / "data")
    short = replace(SETS[TOY], rates=(1e-3,), values=2, epochs=2, patience=1)
    monkeypatch.setitem(sets.SETS, TOY, short)
    plan = (Round("toy", (TOY,), ("ProxyAnchor", "MPA"), 2),)
    monkeypatch.setattr(running.pieces, "__defaults__", (plan, tmp_path / "results"))
    results, out = tmp_path / "results", tmp_path / "out"
    done: Counter[str] = Counter()
    do_piece = running.do_piece

    def counted(piece: running.Piece, data: Path, out: Path) -> bool:
        done[str(piece)] += 1
        if sum(done.values()) == 6:
            raise KeyboardInterrupt
        return do_piece(piece, data, out)

    monkeypatch.setattr(running, "do_piece", counted)
    with pytest.raises(KeyboardInterrupt):
        running.run(tmp_path / "data", out, 1.0, results=results)
    searched = {path: path.stat().st_mtime_ns for path in results.rglob("search-*.json")}
    assert len(searched) == 3
    shutil.rmtree(out / "runs")  # another machine has only the results
    running.run(tmp_path / "data", out, 1.0, results=results)
    running.run(tmp_path / "data", out, 1.0, results=results)
    assert sorted(done.values()) == [*[1] * 7, 2]  # only the one that was stopped was begun again
    after = {path: path.stat().st_mtime_ns for path in results.rglob("search-*.json")}
    assert searched.items() <= after.items()
    assert len(after) == 4
    for name in ("ProxyAnchor", "MPA"):
        cell = Cell(TOY, name, results)
        assert cell.seeds() == [0, 1]
        for seed in (0, 1):
            trials = cell.search(seed)
            assert trials is not None
            best = max(trials, key=lambda trial: trial["value"])
            found = json.loads((cell.folder / f"seed-{seed}.json").read_text())
            assert found["settings"] == best["settings"] | {"schedule.epochs": best["best_epoch"]}


@pytest.mark.parametrize(
    "name", [*TOGETHER, "L-PROFS+HNCM", "M-PROFS, M = 5", "THSG, category loss alone", "PNP-O, merged"]
)
def test_what_no_preset_has_learns(tmp_path: Path, name: str) -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(18), 6)
    features = generator.normal(size=(18, 16))[labels] + generator.normal(size=(len(labels), 16))
    np.savez(tmp_path / "x.npz", features=features.astype(np.float32), labels=labels)
    cell = Cell(TOY, name, tmp_path / "results")
    if cell.base is not None:
        keep_trials(cell.base, 1)
    plan = cell.plan(str(tmp_path / "x.npz"), 1)
    candidate = plan.candidates[name]
    for slot in (0, -1):
        settings = {path: values[slot] for path, values in candidate.search.items() if isinstance(values, list)}
        recipe = recipe_of(plan, name, 0, settings | {"schedule.epochs": 1, "embedder.dim": 8})
        result = train(recipe, tmp_path / f"run-{slot}")
        assert 0 < result["test"]["recall@1"] <= 1


def features_of(counts: list[int]) -> FeatureFile:
    """Return features of classes with so many rows, half of the classes for training."""
    labels = [f"{number:03}" for number, count in enumerate(counts) for _ in range(count)]
    half = len(counts) // 2
    splits = ["train" if int(label) < half else "test" for label in labels]
    return FeatureFile(np.zeros((len(labels), 3), np.float32), labels, splits, [str(row) for row in range(len(labels))])


def test_wrong_labels_are_a_share_of_the_training_rows_and_always_the_same() -> None:
    held = features_of([50] * 20)
    found = mislabelled(0.2)(held)
    wrong = [row for row, (one, other) in enumerate(zip(held.labels, found.labels, strict=True)) if one != other]
    assert len(wrong) == 100
    assert {held.splits[row] for row in wrong} == {"train"}
    assert {found.labels[row] for row in wrong} <= {
        label for label, split in zip(held.labels, held.splits, strict=True) if split == "train"
    }
    assert mislabelled(0.2)(held).labels == found.labels


def test_a_long_tail_reaches_from_all_images_to_four_and_leaves_the_test_alone() -> None:
    held = features_of([60] * 40)
    found = long_tailed()(held)
    counts = Counter(label for label, split in zip(found.labels, found.splits, strict=True) if split == "train")
    assert (max(counts.values()), min(counts.values()), len(counts)) == (60, 4, 20)
    assert np.median(list(counts.values())) == pytest.approx((60 * 4) ** 0.5, rel=0.1)
    assert found.splits.count("test") == held.splits.count("test")
