"""Nearest neighbours against all products, sorted."""

from itertools import count

import numpy as np
import pytest

from tophit.evaluation import near_items as module
from tophit.evaluation.near_items import near_items


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def all_sorted(rows: np.ndarray, wanted: int) -> np.ndarray:
    scores = rows.astype(np.float64) @ rows.T.astype(np.float64)
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1)[:, :wanted]


@pytest.mark.parametrize(("size", "dim", "wanted"), [(2, 3, 1), (5, 4, 10), (321, 20, 3), (1500, 48, 10), (1203, 7, 5)])
def test_neighbours_are_those_of_all_products(size: int, dim: int, wanted: int) -> None:
    rows = unit(np.random.default_rng(size).standard_normal((size, dim)))
    found, exact = near_items(rows, wanted), all_sorted(rows, min(wanted, size - 1))
    assert found.shape == exact.shape
    assert (found == exact).mean() > 0.999  # rounding may hide one of very near scores


def test_one_large_number_does_not_hide_the_others() -> None:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((700, 32))
    rows[:, 0] = 12  # in every row, so that whole numbers have few steps left for the rest
    rows = unit(rows)
    shares = [len(np.intersect1d(a, b)) / 5 for a, b in zip(near_items(rows, 5), all_sorted(rows, 5), strict=True)]
    assert np.mean(shares) > 0.95


def test_the_faster_product_changes_only_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = unit(np.random.default_rng(1).standard_normal((900, 24)))
    ways = []
    for step in (1, -1):
        times = count(0, step)
        monkeypatch.setattr(module, "_least_seconds", lambda work, times=times: (work(), next(times))[1])
        ways.append(near_items(rows, 10))
    np.testing.assert_array_equal(*ways)


def test_a_single_row_has_no_neighbours() -> None:
    assert near_items(np.ones((1, 4), np.float32) / 2, 3).shape == (1, 0)
