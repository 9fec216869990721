"""VehicleID's protocols and In-Shop's roles: in a run, in ``tophit evaluate``, and by the plain functions."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.reference import set_trees

from tophit.data.sets import read_set
from tophit.embedding.rows import embed_rows
from tophit.errors import UsageError
from tophit.evaluation import retrieval_metrics
from tophit.evaluation.protocols import vehicle_id_metrics
from tophit.models import load
from tophit.training.evaluate import cluster_metrics, named_set_metrics
from tophit.training.wanted import measured_for

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=1", "log=[]"]
SET = [word for setting in [*SMALL, "data.partial=true"] for word in ("--set", setting)]


PROTOCOLS: dict[str, tuple[Callable[..., dict[str, float]], str]] = {
    "all": (
        lambda v, labels: dict(retrieval_metrics(v, labels, recall_at=(1, 5, 10))),
        "searches all others",
    ),
    "drawn-galleries": (
        lambda v, labels: vehicle_id_metrics(v, labels, {"": sorted(set(labels))}, recall_at=(1, 5, 10))[""],
        "one random image per class",
    ),
}


@pytest.mark.parametrize(
    ("protocol", "other"),
    [("all", "drawn-galleries"), pytest.param("drawn-galleries", "all", marks=pytest.mark.slow)],
)
def test_a_run_and_an_evaluation_on_vehicleid_use_the_recipes_protocol(
    protocol: str, other: str, tophit: Run, tmp_path: Path
) -> None:
    root, run = set_trees.vehicleid(tmp_path / "VehicleID_V1.0"), tmp_path / "run"
    settings = [*SMALL, "batches.classes=2", "batches.per_class=2"]
    if protocol == "drawn-galleries":  # the paper's is "all"
        settings.append("evaluation.protocol=drawn-galleries")
    words = [word for setting in settings for word in ("--set", setting)]
    printed = " ".join(tophit("train", "pnp/vehicleid", "--data", root, "--run", run, *words).stdout.split())
    assert ("95.5" in printed) == ("small/recall@1" in printed) == (protocol == "all")
    assert PROTOCOLS[protocol][1] in printed
    assert protocol == "all" or "evaluation.protocol is drawn-galleries instead of all" in printed
    result = json.loads((run / "result.json").read_text())
    rows = read_set("vehicleid", root).where("test").rows
    vectors = embed_rows(load(run), rows).vectors
    expected: dict[str, dict[str, dict[str, float]]] = {protocol: {}, other: {}}
    for name, count in (("small", 2), ("medium", 3), ("large", 4)):
        chosen = [i for i, row in enumerate(rows) if name in row.metadata["test_sets"].split()]
        labels = [rows[i].label for i in chosen]
        assert len(set(labels)) == count
        for each, (measure, _) in PROTOCOLS.items():
            expected[each][name] = measure(vectors[chosen], labels)
        assert result["test_sets"][name] == pytest.approx(expected[protocol][name])
    # The run knows the set and its protocol, so the folder alone is enough.
    evaluated = json.loads(tophit("evaluate", run, "--data", root, "--json").stdout)
    assert evaluated["test_sets"]["large"] == pytest.approx(expected[protocol]["large"])
    assert evaluated["protocol"] == protocol
    asked = json.loads(tophit("evaluate", run, "--data", root, "--protocol", other, "--json").stdout)
    assert asked["test_sets"]["large"] == pytest.approx(expected[other]["large"])
    shown = tophit("evaluate", run, "--data", root, "--protocol", other).stdout
    assert PROTOCOLS[other][1] in " ".join(shown.split())


def test_a_protocol_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"The protocol must be drawn-galleries or all, not 'some'"):
        measured_for(None, (), False, "some")


def test_in_shops_queries_search_its_gallery(tophit: Run, tmp_path: Path) -> None:
    root, manifest = set_trees.inshop(tmp_path / "shop"), tmp_path / "shop.csv"
    tophit("data", "inshop", "--root", root, "--out", manifest, "--partial")
    run = tmp_path / "run"
    tophit("train", "head", "--data", manifest, "--run", run, *SET)
    evaluated = json.loads(tophit("evaluate", run, "--data", manifest, "--json").stdout)
    rows = read_set("inshop", root, partial=True).where("test").rows
    vectors = embed_rows(load(run), rows).vectors
    labels = np.asarray([row.label for row in rows])
    query = np.asarray([row.role == "query" for row in rows])
    expected = retrieval_metrics(vectors[query], labels[query], vectors[~query], labels[~query])
    assert evaluated["queries"] == query.sum() == 8
    assert evaluated["metrics"]["recall@1"] == pytest.approx(expected["recall@1"])
    assert "test_sets" not in evaluated


def test_rows_without_test_sets_have_none_and_clusters_need_their_column(tmp_path: Path) -> None:
    rows = read_set("sop", set_trees.sop(tmp_path), partial=True).where("test").rows
    vectors = np.random.default_rng(0).normal(size=(len(rows), 8)).astype(np.float32)
    assert named_set_metrics(vectors, rows) == {}
    assert cluster_metrics(vectors, rows, None, 0) == {}
    of_classes, of_kinds = (cluster_metrics(vectors, rows, name, 0) for name in ("label", "super_class"))
    assert set(of_classes) == set(of_kinds) == {"NMI", "F1"}
    assert of_classes != of_kinds
    with pytest.raises(UsageError, match=r"evaluation\.clusters: the test rows have no column 'colour'"):
        cluster_metrics(vectors, rows, "colour", 0)
