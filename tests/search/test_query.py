"""Queries on any index: examples for and against, by id, expansion, re-ranking, near-duplicates."""

from pathlib import Path

import numpy as np
import pytest
from tests.reference.reranking import alpha_expansion, k_reciprocal

from tophit.data.item_rows import number_or_text, stored_value
from tophit.errors import TophitError, UsageError
from tophit.reranking import AlphaExpansion, KReciprocal
from tophit.search import Index
from tophit.search.duplicates import near_duplicates, write_duplicates
from tophit.search.filters import parse_typed_filter
from tophit.search.query import Query, answer, combined_vector, resolve_items, search_vectors


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    random = np.random.default_rng(0)
    centres = unit(random.normal(size=(8, 12)))
    return unit(np.repeat(centres, 10, axis=0) + 0.7 * unit(random.normal(size=(80, 12)))).astype(np.float32)


@pytest.fixture(scope="module")
def index(vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Index:
    made = Index.create(tmp_path_factory.mktemp("index") / "i", 12)
    made.upsert([f"{i:02}" for i in range(80)], vectors, [{"class": i // 10} for i in range(80)])
    return made


def test_an_item_does_not_find_itself(index: Index, vectors: np.ndarray) -> None:
    found = answer(index, Query(k=4), resolve_items(index, ["05", "33"]))
    for name, hits in zip((5, 33), found, strict=True):
        order = [i for i in np.argsort(-(vectors @ vectors[name])) if i != name][:4]
        assert [hit.id for hit in hits] == [f"{i:02}" for i in order]
        assert [hit.rank for hit in hits] == [1, 2, 3, 4]
    with pytest.raises(TophitError, match=r"no item 'x'"):
        resolve_items(index, ["x"])


def test_examples_for_and_against_are_rocchios_formula() -> None:
    wanted, unwanted = np.array([[2.0, 0, 0], [0, 3, 0]]), np.array([[0, 5.0, 0]])
    expected = np.array([0.5, 0.5, 0]) - 0.25 * np.array([0, 1, 0])
    np.testing.assert_allclose(combined_vector(wanted, unwanted, 0.25), expected / np.linalg.norm(expected), rtol=1e-6)
    np.testing.assert_allclose(combined_vector(wanted), np.array([1, 1, 0]) / np.sqrt(2), rtol=1e-6)
    with pytest.raises(UsageError, match=r"cancel each other out"):
        combined_vector(wanted[:1], wanted[:1], 1.0)
    with pytest.raises(UsageError, match=r"at least one that is wanted"):
        combined_vector(wanted[:0], wanted)


def test_against_pushes_a_class_down(index: Index, vectors: np.ndarray) -> None:
    both = combined_vector(np.stack([vectors[0], vectors[10]]))
    only_first = combined_vector(np.stack([vectors[0], vectors[10]]), vectors[11:15])
    of_second = [sum(hit.metadata["class"] == 1 for hit in search_vectors(index, q, 15)[0]) for q in (both, only_first)]
    assert of_second[1] < of_second[0]


def test_expansion_and_reranking_are_the_slow_ones(index: Index, vectors: np.ndarray) -> None:
    query = unit(vectors[3] + 0.4 * vectors[40])
    order = np.argsort(-(vectors @ query))
    moved = alpha_expansion(query, [vectors[i] for i in order[:5]], 3.0)
    found = search_vectors(index, query, 10, rerank=[AlphaExpansion(5, 3.0)])[0]
    assert [hit.id for hit in found] == [f"{i:02}" for i in np.argsort(-(vectors @ moved))[:10]]
    distances = np.array(k_reciprocal(query, vectors[order[:30]], 8, 3, 0.3))
    found = search_vectors(index, query, 10, rerank=[KReciprocal(30, 8, 3, 0.3)])[0]
    best = np.argsort(distances, kind="stable")[:10]
    assert [hit.id for hit in found] == [f"{order[i]:02}" for i in best]
    assert [hit.score for hit in found] == pytest.approx(1 - distances[best], abs=1e-5)
    assert [hit.rank for hit in found] == list(range(1, 11))


def test_steps_respect_the_filter(index: Index, vectors: np.ndarray) -> None:
    steps = [AlphaExpansion(), KReciprocal(20)]
    found = search_vectors(index, vectors[0], 15, {"class": [0, 3]}, steps)[0]
    assert len(found) == 15
    assert {hit.metadata["class"] for hit in found} <= {0, 3}
    assert search_vectors(index, vectors[0], 5, {"class": 99}, steps) == [[]]


def test_near_duplicates_are_the_connected_groups(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    base = unit(random.normal(size=(300, 16)))
    rows = np.concatenate([base, unit(base[:20] + 0.02 * random.normal(size=(20, 16))), np.repeat(base[50:51], 40, 0)])
    names = [f"{i:03}" for i in random.permutation(len(rows))]
    with Index.create(tmp_path / "i", 16) as index:
        index.upsert(names, rows, [{"path": f"/p/{name}", "label": "x"} for name in names])
        groups = near_duplicates(index, 0.98)
        near = rows @ rows.T >= 0.98
    reach = np.linalg.matrix_power(near.astype(float), 1) > 0
    for _ in range(6):
        reach = reach.astype(float) @ near > 0
    expected = {frozenset(np.array(names)[row].tolist()) for row in reach if row.sum() > 1}
    assert {frozenset(one.id for one in group) for group in groups} == expected
    assert len(groups[0]) == 41
    assert all(one.score >= 0.98 and one.nearest != one.id for group in groups for one in group)
    write_duplicates(groups, tmp_path / "d.csv")
    lines = (tmp_path / "d.csv").read_text().splitlines()
    assert lines[0] == "group,id,path,label,nearest,score"
    assert len(lines) == 1 + 41 + 40
    with pytest.raises(UsageError, match=r"above 0 and up to 1"):
        near_duplicates(index, 1.5)


def test_conditions_as_typed() -> None:
    assert parse_typed_filter(["label=12", "price<=2.5", 'sku="007"', "sold=true", "n!=-3", "code=007"]) == {
        "label": {"eq": "12"},
        "price": {"lte": 2.5},
        "sku": {"eq": "007"},
        "sold": {"eq": True},
        "n": {"ne": -3},
        "code": {"eq": "007"},
    }
    assert parse_typed_filter(["n=1,2"]) == {"n": {"in": [1, 2]}}
    for wrong in ("label", "=3", "label="):
        with pytest.raises(UsageError, match=r"written like label=cat"):
            parse_typed_filter([wrong])
    with pytest.raises(UsageError, match=r"two conditions of the same kind"):
        parse_typed_filter(["n<1", "n<2"])
    assert [number_or_text(t) for t in ("10", "-2.50", "1e5", "007", "")] == [10, -2.5, "1e5", "007", ""]
    assert [stored_value(v) for v in ("10", "", None, float("nan"), True, "x")] == [10, None, None, None, True, "x"]
