"""What a report shows of chances: told against right, known against unknown queries, the cost of a least chance."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.reporting.reported import Opened

from tophit.evaluation import calibrate
from tophit.figures.reliability import calibration_drawings


@pytest.mark.parametrize(
    ("unknown", "names"), [(0.0, ["reliability", "cut_offs"]), (0.3, ["reliability", "open_set_roc", "cut_offs"])]
)
def test_figures_hold_the_numbers_of_the_check(unknown: float, names: list[str]) -> None:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(20, 8))
    vectors = np.repeat(centres, 6, axis=0) + 0.5 * generator.normal(size=(120, 8))
    made = calibrate(vectors, np.repeat(np.arange(20), 6), unknown=unknown)
    drawings = {drawing.name: drawing for drawing in calibration_drawings(made.check, unknown)}
    assert list(drawings) == names
    rows = list(csv.DictReader(io.StringIO(drawings["reliability"].csv())))
    assert [float(row["right"]) for row in rows] == pytest.approx([row["right"] for row in made.check.reliability])
    costs = list(csv.DictReader(io.StringIO(drawings["cut_offs"].csv())))
    assert float(costs[0]["kept"]) == 1
    assert float(costs[0]["least chance"]) == 0
    if "open_set_roc" in drawings:
        value, low, high = made.check.open_set["auroc"]
        assert (
            f"{100 * value:.1f}% (95% interval over classes {100 * low:.1f} to {100 * high:.1f})"
            in drawings["open_set_roc"].caption
        )


def test_the_page_has_a_part_for_chances(report_page: Path, opened: Opened) -> None:
    page = opened(report_page)
    part = page.locator("#chances")
    expect(part).to_contain_text("8 classes that training did not see, of the splits validation and test")
    expect(part.locator("figure svg.drawing")).to_have_count(3)
    expect(part).to_contain_text("What a least chance costs")
    assert (report_page.parent / "figures" / "open_set_roc.csv").is_file()
