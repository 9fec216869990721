import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.reference.comparisons import toy_plan

from tophit.cli import main
from tophit.comparing import Store
from tophit.comparing.comparison import write_outputs
from tophit.comparing.comparison_page import to_html
from tophit.comparing.outputs import to_csv, to_markdown
from tophit.comparing.plan import recipe_of
from tophit.comparing.summary import Comparison, summarise
from tophit.errors import TophitError
from tophit.training.run_rows import rows_of


def planted(store: Store, gains: dict[str, float], seeds: int = 4, classes: int = 40) -> Comparison:
    """Write runs of candidates with planted hit rates and return their comparison."""
    plan = toy_plan("some.csv", seeds=seeds)
    store.begin(plan)
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 30)
    hard = generator.uniform(size=len(labels))
    for name, gain in gains.items():
        for seed in range(seeds):
            hits = (hard + 0.05 * generator.normal(size=len(labels)) < 0.5 + gain).astype(np.float32)
            result = {
                "settings": {},
                "seconds": 1.0 + seed,
                "processor_seconds": 1.0,
                "peak_memory": 2**28,
                "metrics": {},
            }
            store.write_result(name, seed, result, {"recall@1": hits, "MAP@R": hits / 2, "labels": labels})
    return summarise(plan, store)


def test_a_planted_gain_is_recommended_with_its_evidence(tmp_path: Path) -> None:
    found = planted(Store(tmp_path), {"Triplet (all)": 0.0, "ProxyAnchor": 0.05, "Nothing": 0.0})
    assert found.rows[0].name == "ProxyAnchor"
    assert {row.name: row.rank for row in found.rows} == {"ProxyAnchor": 1, "Triplet (all)": 2, "Nothing": 2}
    assert found.best_baseline == "Triplet (all)"
    best = found.rows[0]
    assert best.difference is not None
    assert best.difference.low < 0.05 < best.difference.high
    assert best.difference.probability > 0.999
    assert re.fullmatch(
        r"ProxyAnchor: \+[45]\.\d recall@1 over Triplet \(all\), the best baseline, interval \+[234]\.\d to \+[56]\.\d "
        r"\(4 seeds, 40 test classes\)\.",
        found.recommendation,
    )
    assert best.seconds == 2.5


def test_a_planted_tie_keeps_the_baseline(tmp_path: Path) -> None:
    found = planted(Store(tmp_path), {"Triplet (all)": 0.0, "ProxyAnchor": 0.0, "Nothing": 0.0})
    assert {row.rank for row in found.rows} == {1}
    assert found.recommendation.startswith("Stay with Triplet (all)")


def test_the_headline_the_table_and_the_figure_say_the_same(tmp_path: Path) -> None:
    """Many small differences: what the sentence calls a tie is a tie in the table's p-value and in the figure."""
    ties = 0
    for number, gain in enumerate((0.012, 0.013, 0.0135, 0.014, 0.0145, 0.015, 0.0155, 0.016, 0.017, 0.02)):
        given = {"Triplet (all)": 0.0, "ProxyAnchor": gain, "Nothing": gain / 2}
        found = planted(Store(tmp_path / str(number)), given, seeds=3)
        base = next(row for row in found.rows if row.name == found.best_baseline)
        higher = [row for row in found.rows if row.metrics[found.metric].mean > base.metrics[found.metric].mean]
        assert base.rank == 1 + sum(row.adjusted_p is not None and row.adjusted_p <= 0.05 for row in higher)
        first = found.rows[0]
        if first.adjusted_p is not None and first.adjusted_p > 0.05:
            ties += 1
            assert found.recommendation.startswith("Stay with")
            assert found.winner == found.best_baseline
        for row in found.rows:
            if row.difference is not None:
                sure = row.difference.low > 0 or row.difference.high < 0
                assert sure == ((row.adjusted_p or 0.0) <= 0.05) == (row.verdict != "undecided")
    assert 0 < ties < 10


def test_only_seeds_that_all_have_count(tmp_path: Path) -> None:
    store = Store(tmp_path)
    planted(store, {"Triplet (all)": 0.0, "ProxyAnchor": 0.1, "Nothing": 0.0})
    store.result_path("Nothing", 3).unlink()
    assert summarise(store.plan(), store).seeds == 3
    for seed in range(3):
        store.result_path("Nothing", seed).unlink()
    with pytest.raises(TophitError, match=r"no seed that all candidates have finished"):
        summarise(store.plan(), store)


def test_the_files_say_the_same(tmp_path: Path) -> None:
    found = planted(Store(tmp_path), {"Triplet (all)": 0.0, "ProxyAnchor": 0.05, "Nothing": -0.1})
    paths = write_outputs(found, tmp_path)
    assert [path.suffix for path in paths] == [".json", ".csv", ".md", ".html"]
    data = json.loads(paths[0].read_text())
    assert data == json.loads(json.dumps(found.to_json()))
    lines = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [line["candidate"] for line in lines] == [row.name for row in found.rows]
    assert float(lines[0]["recall@1 low"]) == found.rows[0].metrics["recall@1"].low
    assert lines[1]["difference"] == ""  # the best baseline itself
    assert found.recommendation in to_markdown(found)
    page = to_html(found)
    embedded = re.search(r'id="comparison">(.*?)</script>', page, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1]) == data
    assert "://" not in page  # it needs nothing from elsewhere


def test_the_command_runs_a_plan_and_prints_its_tables_again(
    tmp_path: Path, toy_data: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(toy_plan(toy_data, seeds=1, epochs=1).to_yaml())

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["tophit", "compare", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out = capsys.readouterr()
        return out.out if end.value.code == 0 else f"{end.value.code} {out.err}"

    out = str(tmp_path / "it")
    first = run(str(plan), "--out", out, "--workers", "2")
    assert "ProxyAnchor" in first
    assert "comparison.html" in first
    assert run(out, "--report") == first
    assert Store(tmp_path / "it").plan().data["manifest"] == toy_data
    assert run(out, "--seeds", "2", "--workers", "1").count("Nothing") >= 1
    assert "2 seeds" in (tmp_path / "it" / "comparison.md").read_text()
    assert run(str(plan)).startswith("2 Error: Name the comparison's folder")
    assert run("--preset", "quick", "--out", out).startswith("2 Error: A preset names no data")
    assert run().startswith("2 Error: Name a plan")
    assert run("--worker").startswith("2 Error: --worker helps with a comparison")
    assert run(str(tmp_path / "nowhere"), "--worker").startswith("2 Error: There is no comparison")


def test_runs_on_other_test_images_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    planted(store, {"Triplet (all)": 0.0, "ProxyAnchor": 0.0, "Nothing": 0.0})
    values, labels = store.per_query("ProxyAnchor", 1, "recall@1")
    result = store.result("ProxyAnchor", 1)
    store.result_path("ProxyAnchor", 1).unlink()
    assert result is not None
    store.write_result("ProxyAnchor", 1, result, {"recall@1": values, "MAP@R": values, "labels": labels[::-1]})
    with pytest.raises(
        TophitError, match=r"ProxyAnchor, seed 1 was not tested on the images of Triplet \(all\), seed 0"
    ):
        summarise(store.plan(), store)


def test_seeds_of_a_folder_are_tested_on_the_same_classes(pictures: Path) -> None:
    plan = toy_plan(str(pictures), seeds=3)
    tested = [set(rows_of(recipe_of(plan, "ProxyAnchor", seed, {})).test.labels) for seed in range(3)]
    assert tested[0] == tested[1] == tested[2]
    other = recipe_of(plan, "ProxyAnchor", 0, {"data.split_seed": 1})
    assert set(rows_of(other).test.labels) != tested[0]


def test_images_that_could_not_be_read_are_told(tmp_path: Path) -> None:
    found = planted(Store(tmp_path), {"Triplet (all)": 0.0, "ProxyAnchor": 0.0, "Nothing": 0.0})
    assert "could not be read" not in to_markdown(found)
    assert "21 images could not be read and are left out." in to_markdown(replace(found, unreadable=21))
