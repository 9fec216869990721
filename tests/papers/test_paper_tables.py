"""A paper's numbers beside ours: where they stand, their intervals, and the words below a table."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from tophit.evaluation import RankedQueries, parse_metric
from tophit.papers.entries import columns_of, entry_names, find_entry, rows_of
from tophit.papers.measured_rows import measure
from tophit.papers.paper_outputs import to_csv, to_html, to_markdown
from tophit.papers.reproduction import Choice, Reproduction, begin, shortened
from tophit.recipe import read_recipe


def begun(out: Path, tmp_path: Path, **choice: Any) -> Reproduction:
    """Begin PROFS's table with two rows, on a folder that says it is CUB."""
    data = tmp_path / "cub"
    (data / "images").mkdir(parents=True)
    (data / "images.txt").write_text("")
    return begin("profs/table-1", str(data), out, Choice(rows=["Triplet-Hard", "T-PROFS"], **choice))


def finish(made: Reproduction, recalls: dict[str, list[float]], **more: Any) -> None:
    for name, values in recalls.items():
        for seed, value in enumerate(values):
            result = {
                "candidate": name,
                "seed": seed,
                "settings": {},
                "metrics": {"recall@1": value, "NMI": 0.5},
                **more,
            }
            made.store.write_result(name, seed, result, {})


def test_the_papers_numbers_stand_beside_ours_with_intervals_over_seeds(tmp_path: Path) -> None:
    made = begun(tmp_path / "out", tmp_path, seeds=3)
    recalls = [0.50, 0.53, 0.52]
    finish(made, {"Triplet-Hard": recalls, "T-PROFS": [0.55, 0.56, 0.57]})
    found = measure(made)
    cell = next(row for row in found.rows if row.name == "Triplet-Hard").cells["recall@1"]
    half = t.ppf(0.975, 2) * stdev(100 * value for value in recalls) / np.sqrt(3)
    assert cell.ours == pytest.approx(100 * mean(recalls))
    assert cell.half_width == pytest.approx(half)
    assert cell.paper == 56.8
    assert f"51.7 ±{half:.1f} / 56.8" in to_markdown(found)
    assert "Means of 3 seeds" in found.notes[0]
    line = next(each for each in to_csv(found).splitlines() if each.startswith("T-PROFS,recall@1"))
    assert line.split(",")[4:6] == ["57.9", "3"]
    assert "<small>paper 57.9</small>" in to_html(found)


def test_on_other_data_the_papers_numbers_are_left_out(tmp_path: Path) -> None:
    made = begun(tmp_path / "out", tmp_path)
    finish(made, {"Triplet-Hard": [0.5], "T-PROFS": [0.6]}, paper_left_out="the data are other birds")
    found = measure(made)
    assert {cell.paper for row in found.rows for cell in row.cells.values()} == {None}
    assert "The paper's numbers are left out: the data are other birds." in found.notes


def test_what_differs_from_the_papers_set_up_is_told_once_for_all_rows(tmp_path: Path) -> None:
    made = begun(tmp_path / "out", tmp_path, epochs=4, overrides=["embedder.size=112"])
    told = [note for note in measure(made).notes if "iffers from the paper's set-up" in note]
    assert len(told) == 1
    assert "embedder.size 112 instead of 224" in told[0]
    assert "schedule.epochs 4 instead of 100" in told[0]


def test_rows_that_failed_or_are_missing_are_told(tmp_path: Path) -> None:
    made = begun(tmp_path / "out", tmp_path)
    made.store.write_result("T-PROFS", 0, {"candidate": "T-PROFS", "seed": 0, "error": "no memory"}, {})
    found = measure(made)
    assert "Failed: T-PROFS, no memory" in to_markdown(found)
    assert all(row.cells["recall@1"].ours is None for row in found.rows)


def test_a_shorter_schedule_keeps_its_shape() -> None:
    assert shortened(read_recipe("mpa/cub200", data="x"), 6) == {"epochs": 6, "step_epochs": 2}  # 20 of 60
    assert shortened(read_recipe("pnp/sop", data="x"), 40) == {"epochs": 40, "milestones": [12, 22, 25, 28]}
    assert shortened(read_recipe("thsg/cub200", data="x"), 3) == {"epochs": 3}


def test_a_folder_keeps_one_table(tmp_path: Path) -> None:
    begun(tmp_path / "out", tmp_path)
    with pytest.raises(Exception, match="holds profs/table-1 on cub200; name another folder"):
        begin("topk/table-1", str(tmp_path / "cub"), tmp_path / "out", Choice())


@pytest.mark.parametrize("name", [name for name in entry_names() if find_entry(name).sets])
def test_rows_and_columns_are_those_of_the_paper(name: str) -> None:
    entry = find_entry(name)
    for set_name in entry.sets:
        rows = rows_of(entry, set_name)
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            assert set(row.printed) <= set(columns_of(entry, set_name))
        if entry.draws == "table":
            unprinted = [row.name for row in rows if not row.printed]
            assert unprinted in ([], ["PNP-Ib"])  # the one row that the text names and the table does not print


def test_map_at_the_size_of_the_class_counts_the_query() -> None:
    # Hits at ranks 1, 6, 7, 8 of the first R + 1 = 8 results: (1 + 2/6 + 3/7 + 4/8) / 8.
    query = RankedQueries(0, np.asarray([7]), np.asarray([1, 6, 7, 8, 9, 10, 15]))
    assert parse_metric("MAP@C")(query)[0] == pytest.approx((1 + 2 / 6 + 3 / 7 + 4 / 8) / 8)
