"""Tables over seeds: the mean and the half width of its 95% interval."""

import statistics
from collections.abc import Sequence

STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def interval(values: Sequence[float]) -> str:
    """Return the mean over seeds and the half width of its 95% interval, by Student's t."""
    half = STUDENT_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.1f} ± {half:.1f}"
