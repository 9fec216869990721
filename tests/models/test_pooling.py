"""Pooling against literal definitions."""

import itertools
import math

import numpy as np
import pytest
import torch

from tophit.models.pooling import (
    AveragePooling,
    GeMPooling,
    MaxPooling,
    RMACPooling,
    as_map,
    build_pooling,
    rmac_regions,
)


def literal_rmac(x: np.ndarray, levels: int) -> np.ndarray:
    """R-MAC of one map (C, h, w) as the paper says it, with loops: regions, maxima, unit length, sum."""
    channels, height, width = x.shape
    short, long = min(height, width), max(height, width)
    extra = 0
    if short != long:  # how many squares of the short side, so that neighbours share nearly 40% of their area
        shares = []
        for squares in range(2, 8):
            step = (long - short) / (squares - 1)
            shares.append((short * short - short * step) / (short * short))
        extra = int(np.argmin(np.abs(np.array(shares) - 0.4))) + 1
    total = np.zeros(channels)
    for level in range(1, levels + 1):
        side = max(1, math.floor(2 * short / (level + 1)))
        across, down = level + extra * (width > height), level + extra * (height > width)
        for i, j in itertools.product(range(down), range(across)):
            top = math.floor(i * (height - side) / (down - 1)) if down > 1 else 0
            left = math.floor(j * (width - side) / (across - 1)) if across > 1 else 0
            region = np.array([x[c, top : top + side, left : left + side].max() for c in range(channels)])
            total += region / np.linalg.norm(region)
    return total


@pytest.mark.parametrize(("height", "width"), [(7, 7), (8, 8), (7, 10), (15, 7), (4, 13), (1, 1), (2, 3)])
@pytest.mark.parametrize("levels", [1, 3, 4])
def test_rmac_is_its_definition(height: int, width: int, levels: int) -> None:
    x = torch.rand(2, 6, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = np.stack([literal_rmac(image, levels) for image in x.numpy()])
    np.testing.assert_allclose(RMACPooling(levels)(x).numpy(), expected, rtol=1e-12)


def test_rmac_has_the_papers_regions() -> None:
    assert len(rmac_regions(7, 7, 3)) == 1 + 4 + 9
    assert rmac_regions(7, 7, 1) == [(0, 0, 7)]
    for height, width in ((7, 7), (5, 9), (14, 6)):
        for top, left, side in rmac_regions(height, width, 3):
            assert 0 <= top <= height - side
            assert 0 <= left <= width - side
    assert [left for _, left, _ in rmac_regions(10, 16, 1)] == [0, 6]  # two squares of 10 that share 4 columns: 40%


def test_one_level_of_a_square_map_is_max_pooling_of_unit_length() -> None:
    x = torch.rand(2, 5, 6, 6)
    torch.testing.assert_close(RMACPooling(1)(x), torch.nn.functional.normalize(MaxPooling()(x)))
    torch.testing.assert_close(MaxPooling()(x), x.flatten(2).max(dim=2).values)


def test_a_learned_power_gets_the_gradient_of_finite_differences() -> None:
    x = torch.rand(3, 4, 5, 5, dtype=torch.float64) + 0.1
    pooling = GeMPooling(3.0, learn=True).double()
    pooling(x).sum().backward()
    step = 1e-5
    slope = (GeMPooling(3 + step)(x).sum() - GeMPooling(3 - step)(x).sum()) / (2 * step)
    assert isinstance(pooling.p, torch.nn.Parameter)
    torch.testing.assert_close(pooling.p.grad, slope, rtol=1e-6, atol=0)
    torch.testing.assert_close(pooling(x), GeMPooling(3.0)(x))
    with torch.no_grad():
        pooling.p.fill_(-2.0)
    torch.testing.assert_close(pooling(x), AveragePooling()(x))  # never below 1


@pytest.mark.parametrize("name", ["average", "max", "rmac", "gem"])
def test_every_pooling_passes_gradients(name: str) -> None:
    x = (torch.rand(2, 3, 4, 5, dtype=torch.float64) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(build_pooling(name), (x,))


def test_tokens_become_the_map_they_were() -> None:
    grid = torch.rand(2, 5, 3, 3)
    tokens = torch.cat([torch.rand(2, 4, 5), grid.flatten(2).transpose(1, 2)], dim=1)
    assert torch.equal(as_map(tokens, 4), grid)
    assert as_map(torch.rand(2, 6, 5)).shape == (2, 5, 6, 1)
    assert as_map(grid) is grid
