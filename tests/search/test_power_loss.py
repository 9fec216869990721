"""Power loss: whatever was not flushed to the disk may be gone, and no acknowledged write is."""

import shutil
from pathlib import Path

import pytest
from benchmarks.power_loss import simulate

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to record writes")


def test_some_moments_of_a_power_loss(tmp_path: Path) -> None:
    tried, failures = simulate(tmp_path, 4, every=23)
    assert tried > 15
    assert not failures


@pytest.mark.slow
def test_a_thousand_moments_of_a_power_loss(tmp_path: Path) -> None:
    tried, failures = simulate(tmp_path, 40, every=2)
    print(f"{tried} crash points")
    assert tried >= 1000
    assert not failures
