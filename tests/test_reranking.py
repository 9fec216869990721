"""Alpha query expansion and k-reciprocal re-ranking against the papers' definitions, spelled out slowly."""

import numpy as np
import pytest
from tests.reference.reranking import alpha_expansion, k_reciprocal

from tophit.errors import UsageError
from tophit.evaluation import retrieval_metrics
from tophit.reranking import AlphaExpansion, KReciprocal, expand_queries, k_reciprocal_distances, parse_reranking


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def clustered(seed: int, classes: int, each: int, dim: int = 8, noise: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    return unit(
        unit(random.normal(size=(classes, dim)))[labels] + noise * unit(random.normal(size=(len(labels), dim)))
    ), labels


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_alpha_expansion_is_the_formula(alpha: float) -> None:
    random = np.random.default_rng(0)
    queries, nearest = unit(random.normal(size=(5, 6))), unit(random.normal(size=(5, 4, 6)))
    nearest[0, 2:] = 0  # fewer neighbours than asked for
    expected = [
        alpha_expansion(q, [x for x in near if x.any()], alpha) for q, near in zip(queries, nearest, strict=True)
    ]
    np.testing.assert_allclose(expand_queries(queries, nearest, alpha), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("k1", "k2", "share", "count"), [(5, 3, 0.3, 30), (20, 6, 0.3, 40), (4, 1, 0.0, 12), (7, 2, 1.0, 5)]
)
def test_k_reciprocal_is_the_papers_definition(k1: int, k2: int, share: float, count: int) -> None:
    vectors, _ = clustered(k1, 6, 12)
    queries = vectors[:4]
    order = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, 1 : count + 1]
    got = k_reciprocal_distances(queries, vectors[order], KReciprocal(count, k1, k2, share))
    expected = [k_reciprocal(q, vectors[found], k1, k2, share) for q, found in zip(queries, order, strict=True)]
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_k_reciprocal_stands_duplicates() -> None:
    vectors = np.repeat(np.eye(3), 4, axis=0)
    got = k_reciprocal_distances(vectors[:1], vectors[None, 1:], KReciprocal(11, 3, 2))
    assert got[0, :3] == pytest.approx(0, abs=1e-6)
    assert (got[0, 3:] > 0.9).all()


def ranks_by_hand(vectors: np.ndarray, labels: np.ndarray, step: AlphaExpansion | KReciprocal) -> list[float]:
    """Average precision of every query, the full list sorted and re-ranked one query at a time."""
    precisions = []
    for number, query in enumerate(vectors):
        others = [i for i in range(len(vectors)) if i != number]
        order = sorted(others, key=lambda i, q=query: (-float(q @ vectors[i]), i))
        if isinstance(step, AlphaExpansion):
            moved = alpha_expansion(query, [vectors[i] for i in order[: step.neighbours]], step.alpha)
            order = sorted(others, key=lambda i, q=moved: (-float(q @ vectors[i]), i))
        else:
            first = order[: step.candidates]
            distances = k_reciprocal(query, vectors[first], step.k1, step.k2, step.share)
            order = [first[i] for i in np.argsort(distances, kind="stable")] + order[step.candidates :]
        right = [labels[i] == labels[number] for i in order]
        precisions.append(np.mean([sum(right[: r + 1]) / (r + 1) for r in range(len(right)) if right[r]]))
    return precisions


@pytest.mark.parametrize("step", [AlphaExpansion(4, 2.0), KReciprocal(15, 6, 3, 0.3), KReciprocal(500, 6, 3, 0.3)])
def test_evaluation_with_reranking_is_the_slow_one(step: AlphaExpansion | KReciprocal) -> None:
    vectors, labels = clustered(3, 8, 7, noise=0.9)
    measured = retrieval_metrics(vectors, labels, rerank=step)
    np.testing.assert_allclose(measured.per_query["mAP"], ranks_by_hand(vectors, labels, step), atol=1e-9)
    in_parts = retrieval_metrics(vectors, labels, rerank=step, memory_budget=2**18)
    np.testing.assert_allclose(in_parts.per_query["mAP"], measured.per_query["mAP"])


@pytest.mark.parametrize("step", [AlphaExpansion(), KReciprocal()])
def test_reranking_helps_where_classes_are_large_and_queries_noisy(step: AlphaExpansion | KReciprocal) -> None:
    vectors, labels = clustered(5, 10, 20, dim=32, noise=1.2)
    assert retrieval_metrics(vectors, labels, rerank=step)["mAP"] > retrieval_metrics(vectors, labels)["mAP"] + 0.05


def test_reranking_a_gallery_leaves_out_own_items() -> None:
    vectors, labels = clustered(4, 6, 6)
    whole = retrieval_metrics(vectors, labels, rerank=KReciprocal(10))
    as_gallery = retrieval_metrics(
        vectors,
        labels,
        gallery=vectors,
        gallery_labels=labels,
        own_items=np.arange(len(vectors)),
        rerank=KReciprocal(10),
    )
    assert as_gallery["MAP@R"] == pytest.approx(whole["MAP@R"])


def test_settings_are_read_and_mistakes_named() -> None:
    assert parse_reranking("k-reciprocal:k1=10,share=0.5") == KReciprocal(k1=10, share=0.5)
    with pytest.raises(UsageError, match=r"no re-ranking 'magic'; choices: alpha-qe, k-reciprocal"):
        parse_reranking("magic")
    with pytest.raises(UsageError, match=r"no setting 'beta'"):
        parse_reranking("alpha-qe:beta=1")
    with pytest.raises(UsageError, match=r"k1 must be a number, not 'x'"):
        parse_reranking("k-reciprocal:k1=x")
    with pytest.raises(UsageError, match=r"share from 0 to 1"):
        parse_reranking("k-reciprocal:share=2")
