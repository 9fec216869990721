"""The evaluate command: what it measures, prints and writes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tophit.data.folders import open_data
from tophit.data.manifest import Manifest
from tophit.errors import UsageError
from tophit.evaluation import paired_difference
from tophit.models import load
from tophit.training.full_evaluation import as_json, evaluate_fully, write_evaluation


def test_files_agree_with_each_other_and_name_real_images(pictures: Path, tmp_path: Path) -> None:
    rows = open_data(str(pictures))
    found = evaluate_fully(load("small"), rows, load("small"), metrics=["recall@16"], clusters=True)
    write_evaluation(found, tmp_path / "out")
    written = json.loads((tmp_path / "out/evaluation.json").read_text())
    table = pq.read_table(tmp_path / "out/per_query.parquet")
    assert table.num_rows == len(rows) == written["queries"]
    for name, mean in written["metrics"].items():
        assert np.nanmean(table[name].to_numpy()) == pytest.approx(mean)
        low, high = written["intervals"][name]
        assert low <= mean <= high
        assert f"against {name}" in table.column_names
    assert "recall@16" in written["metrics"]
    assert set(written["clustering"]) == {"NMI", "F1"}
    worst = written["worst_queries"][0]
    assert worst["average_precision"] == np.nanmin(table["mAP"].to_numpy())
    assert all(Path(result["path"]).is_file() for result in worst["results"])
    assert worst["path"] not in [result["path"] for result in worst["results"]]


def test_a_model_does_not_differ_from_itself(pictures: Path) -> None:
    model = load("small")
    found = evaluate_fully(model, open_data(str(pictures)), model)
    assert {(d.mean, d.low, d.high, d.p_permutation) for d in found.differences.values()} == {(0, 0, 0, 1)}


def test_differences_are_of_the_same_queries_without_those_either_cannot_read(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "test")
    (tmp_path / "test/class 0/0.png").write_bytes(b"no image")
    rows = open_data(str(tmp_path))
    found = evaluate_fully(load("small"), rows, load("small"))
    assert len(found.queries) == len(rows) - 1
    assert found.other is not None
    labels = [row.label for row in found.queries]
    expected = paired_difference(found.metrics.per_query["mAP"], found.other.per_query["mAP"], labels)
    assert found.differences["mAP"] == expected


def test_queries_without_an_answer_are_null_in_json(pictures: Path) -> None:
    rows = Manifest(tuple(row for row in open_data(str(pictures)) if row.path.name == "0.png"))
    answer = as_json(evaluate_fully(load("small"), rows))
    assert answer["metrics"]["mAP"] is None
    assert answer["worst_queries"] == []
    json.dumps(answer, allow_nan=False)


def test_a_wrong_metric_is_named() -> None:
    with pytest.raises(UsageError, match=r"no metric 'recal@3'.*recall@K"):
        evaluate_fully(load("small"), Manifest(()), metrics=["recal@3"])


def test_the_command_prints_intervals_and_the_paired_difference(tophit, pictures: Path, tmp_path: Path) -> None:
    done = tophit("evaluate", "small", "--data", pictures, "--against", "small", "--out", tmp_path / "e")
    assert "95% interval" in done.stdout
    assert "difference" in done.stdout
    assert str(tmp_path / "e") in done.stderr
    assert {path.name for path in (tmp_path / "e").iterdir()} == {"evaluation.json", "per_query.parquet"}
