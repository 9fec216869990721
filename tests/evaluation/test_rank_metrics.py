"""Metrics by name: those of the package, those from outside, and errors that say what to write instead."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tophit.errors import UsageError
from tophit.evaluation import parse_metric, retrieval_metrics
from tophit.evaluation.nearest import first_items
from tophit.evaluation.scores import search_task
from tophit.recipe import make_recipe
from tophit.training import train

THEIRS = """
import numpy as np

def mrr(found):
    return 1 / found.first_ranks

def hits(found, k: int):
    return found.among_first(k)

def one_number(found):
    return 0.5

def nothing(found):
    return np.full(len(found.counts), np.nan)
"""


@pytest.fixture
def their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module outside of Tophit with metrics of its own, on sys.path here and in commands."""
    (tmp_path / "their_metrics.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def some_set() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(60, 6)), generator.integers(0, 8, 60)


def literal_first_ranks(vectors: np.ndarray, labels: np.ndarray) -> list[int]:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    ranks = []
    for query in range(len(unit)):
        order = [i for i in np.argsort(-(unit @ unit[query]), kind="stable") if i != query]
        ranks.append(1 + next(place for place, i in enumerate(order) if labels[i] == labels[query]))
    return ranks


def test_a_metric_from_outside_is_measured_beside_the_others(their_module: Path) -> None:
    vectors, labels = some_set()
    names = ["their_metrics:mrr", "their_metrics:hits@5", "recall@16"]
    found = retrieval_metrics(vectors, labels, confidence=0.95, metrics=names)
    ranks = literal_first_ranks(vectors, labels)
    np.testing.assert_allclose(found.per_query["their_metrics:mrr"], [1 / rank for rank in ranks])
    assert found["their_metrics:mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert found["their_metrics:hits@5"] == pytest.approx(5 * found["precision@5"])
    assert found["recall@16"] == np.mean([rank <= 16 for rank in ranks])
    low, high = found.intervals["their_metrics:mrr"]
    assert low < found["their_metrics:mrr"] < high
    plain = retrieval_metrics(vectors, labels, confidence=0.95)
    assert all(found.intervals[name] == plain.intervals[name] for name in plain)


def test_a_further_metric_stands_beside_its_kind_and_only_once() -> None:
    names = list(retrieval_metrics(*some_set(), metrics=["recall@3", "mAP", "recall@8"]))
    assert names[:5] == ["recall@1", "recall@2", "recall@3", "recall@4", "recall@8"]
    assert len(names) == len(set(names)) == 14


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("recal@3", r"no metric 'recal@3'. Did you mean 'recall'\? Choices: .*recall@K.*R-precision"),
        ("recall", r"recall needs a number of results of at least 1, as in recall@10"),
        ("recall@0", r"recall needs a number"),
        ("recall@x", r"no metric 'recall@x'"),
        ("mAP@5", r"mAP takes no number of results: write mAP, not mAP@5"),
        ("their_metrics:mrr@5", r"their_metrics:mrr takes no number"),
        ("their_metrics:absent", r"module their_metrics has no absent"),
        ("no_such_module:mrr", r"can't be imported"),
    ],
)
def test_a_wrong_name_is_explained(their_module: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_metric(name)


@pytest.mark.parametrize("name", ["their_metrics:one_number", "their_metrics:nothing"])
def test_a_metric_must_give_every_query_a_number(their_module: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"one finite number per query .* shape \(60,\)"):
        retrieval_metrics(*some_set(), metrics=[name])


def test_the_command_measures_a_metric_from_outside(tophit, pictures: Path, their_module: Path) -> None:
    path = os.pathsep.join(filter(None, [str(their_module), os.environ.get("PYTHONPATH", "")]))
    wanted = ("evaluate", "small", "--data", pictures, "--metric", "their_metrics:mrr")
    done = tophit(*wanted, "--json", "--out", their_module / "out", PYTHONPATH=path)
    said = json.loads(done.stdout)
    low, high = said["intervals"]["their_metrics:mrr"]
    assert said["metrics"]["recall@1"] <= said["metrics"]["their_metrics:mrr"] <= 1
    assert low <= said["metrics"]["their_metrics:mrr"] <= high
    assert said == json.loads((their_module / "out/evaluation.json").read_text())


def test_a_metric_from_outside_chooses_the_epoch_of_a_run(their_module: Path, toy_data: str) -> None:
    recipe = make_recipe(
        {
            "data": {"manifest": toy_data, "validation_share": 0.3},
            "embedder": {"trainable": "head", "dim": 8},
            "batches": {"classes": 6, "per_class": 4},
            "schedule": {"epochs": 2},
            "evaluation": {"metric": "their_metrics:mrr", "before": False},
        }
    )
    result = train(recipe, their_module / "run")
    assert 0 < result["validation"]["their_metrics:mrr"] <= 1
    assert result["test"]["recall@1"] <= result["test"]["their_metrics:mrr"] <= 1


@pytest.mark.parametrize("budget", [2**30, 2**20])  # the gallery in one span, and in several
def test_first_items_are_in_the_order_of_scores_and_then_of_indices(budget: int) -> None:
    generator = np.random.default_rng(1)
    directions = generator.normal(size=(40, 4))
    which = generator.integers(0, 40, 3000)  # many equal vectors
    task = search_task(directions[which][:50], which[:50], directions[which], which, np.arange(50))
    items, scores = first_items(task, 30, budget)
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    for query in range(50):
        exact = (unit @ unit[which[query]])[which]
        order = [i for i in np.lexsort((np.arange(3000), -exact.round(9))) if i != query][:30]
        assert items[query].tolist() == order
        np.testing.assert_allclose(scores[query], exact[order], atol=1e-12)


def test_first_items_end_where_there_are_no_more() -> None:
    vectors, labels = some_set()
    task = search_task(vectors[:3], labels[:3], vectors[:4], labels[:4], [0, -1, 2])
    items, scores = first_items(task, 10)
    assert items.shape == (3, 4)
    assert (items[:, 3] >= 0).tolist() == [False, True, False]
    assert np.isneginf(scores[0, 3])
