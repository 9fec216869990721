"""The golden cases: values of two independent implementations (tests/golden/metrics.json)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from reference import metrics as reference
from tophit.evaluation import RankedQueries, class_spread, nmi, pairwise_f1, parse_metric, retrieval_metrics

CASES = {
    case["id"]: case for case in json.loads((Path(__file__).parents[1] / "golden/metrics.json").read_text())["cases"]
}
OURS = {"AP": "mAP", "MAP_at_R": "MAP@R", "R_precision": "R-precision", "roth_mAP_c": "MAP@C"}
KS = (1, 2, 3, 4, 5, 8, 10)


def case_ids(prefix: str) -> list[str]:
    return [name for name in CASES if name.startswith(prefix)]


def metrics_of_list(rel: list[int], total: int) -> dict[str, float]:
    """Metrics of one ranked list; relevant items that it does not show stand far below."""
    shown = [i + 1 for i, hit in enumerate(rel) if hit]
    ranks = np.asarray(shown + [10**6 + i for i in range(total - len(shown))])
    found = RankedQueries(0, np.asarray([total]), ranks)
    names = [f"{kind}@{k}" for kind in ("recall", "precision", "ndcg", "MAP") for k in KS]
    return {name: float(parse_metric(name)(found)[0]) for name in (*names, "mAP", "MAP@R", "R-precision")}


@pytest.mark.parametrize("name", case_ids("table3_row"))
def test_metric_table_of_the_mpa_paper(name: str) -> None:
    case = CASES[name]
    ours = metrics_of_list(case["inputs"]["rel"], case["params"]["R"])
    expected = case["outputs"]
    percent = [100 * ours[key] for key in ("recall@10", "precision@10", "MAP@R", "MAP@10", "ndcg@10")]
    assert percent == pytest.approx(
        [expected[key] for key in ("recall10", "precision10", "map_at_R", "map_at_10", "ndcg10")], abs=1e-11
    )
    assert [round(value, 1) for value in percent] == expected["printed"]


@pytest.mark.parametrize("name", case_ids("list_"))
def test_ranked_lists(name: str) -> None:
    case = CASES[name]
    ours = metrics_of_list(case["inputs"]["rel"], case["inputs"]["R"])
    compared = 0
    for key, value in case["outputs"].items():
        if OURS.get(key, key) in ours:
            assert ours[OURS.get(key, key)] == pytest.approx(value, abs=1e-12), key
            compared += 1
    assert compared >= 15


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("rule", "key"), [("skip", "mean_skip_queries_without_positives"), ("zero", "mean_all_queries_missing_as_zero")]
)
@pytest.mark.parametrize("name", case_ids("set_"))
def test_sets(name: str, rule: str, key: str, dtype: type) -> None:
    case = CASES[name]
    rows, labels = np.asarray(case["inputs"]["x_raw"], dtype), case["inputs"]["labels"]
    options = {"recall_at": KS, "precision_at": KS, "ndcg_at": KS, "queries_without_positives": rule}
    ours = retrieval_metrics(rows, labels, **options, metrics=["MAP@C"])
    for metric, value in case["outputs"][key].items():
        if OURS.get(metric, metric) in ours:
            assert ours[OURS.get(metric, metric)] == pytest.approx(value, abs=1e-12), metric


@pytest.mark.parametrize("name", case_ids("set_"))
def test_queries_of_sets(name: str) -> None:
    case = CASES[name]
    ours = retrieval_metrics(case["inputs"]["x_raw"], case["inputs"]["labels"], None, None, KS, KS, KS).per_query
    for query in case["outputs"]["per_query"]:
        expected = reference.query_metrics(query["rel"], KS, KS, KS)
        for metric, value in expected.items():
            assert float(ours[metric][query["query"]]) == pytest.approx(value, abs=1e-12, nan_ok=True), metric


@pytest.mark.parametrize("name", case_ids("set_"))
def test_spread_of_sets(name: str) -> None:
    case = CASES[name]
    ours = class_spread(case["inputs"]["x_raw"], case["inputs"]["labels"])
    assert ours["intra"] == pytest.approx(case["outputs"]["dists_intra_unit"], abs=1e-12)
    assert ours["inter"] == pytest.approx(case["outputs"]["dists_inter_unit"], abs=1e-12)


@pytest.mark.parametrize("name", case_ids("cluster_"))
def test_partitions(name: str) -> None:
    case = CASES[name]
    predicted, true = case["inputs"]["pred"], case["inputs"]["true"]
    assert nmi(predicted, true) == pytest.approx(case["outputs"]["NMI"], abs=1e-12)
    assert pairwise_f1(predicted, true) == pytest.approx(case["outputs"]["F1"], abs=1e-12)


def test_every_golden_case_is_used() -> None:
    used = [name for prefix in ("table3_row", "list_", "set_", "cluster_") for name in case_ids(prefix)]
    assert sorted(used) == sorted(CASES)
    assert len(used) == 22
    assert not math.isnan(CASES["list_0"]["outputs"]["AP"])
