"""What tables of a comparison say, in words and numbers for people."""

from tophit.compare.statistics import Estimate
from tophit.compare.summary import Comparison, Row, counted_seeds


def explained(comparison: Comparison) -> str:
    """Return how the numbers were measured, in a sentence or two."""
    against = "" if comparison.best_baseline is None else f" Differences are to {comparison.best_baseline}."
    over = "seeds and classes" if comparison.seeds > 1 else "classes"
    return (
        f"{counted_seeds(comparison.seeds)}, {comparison.queries} test queries of {comparison.classes} classes. "
        f"In percent, with 95% intervals over {over}.{against} A rank is one more than there are candidates "
        f"better beyond doubt, all pairs compared; equal ranks can't be told apart.{_left_out(comparison.unreadable)}"
    )


def _left_out(images: int) -> str:
    return f" {images:,} images could not be read and are left out." if images else ""


def heads(comparison: Comparison) -> list[str]:
    """Return the heads of the table."""
    others = [metric for metric in comparison.rows[0].metrics if metric != comparison.metric]
    return ["rank", "candidate", comparison.metric, "difference", "P(better)", "p (Holm)", *others, "s a run", "MB"]


def cells(row: Row, comparison: Comparison) -> list[str]:
    """Return a candidate's cells, in the order of the heads."""
    main, found = row.metrics[comparison.metric], row.difference
    name = f"{row.name} (baseline)" if row.baseline else row.name
    compared = ["", "", ""]
    if found is not None:
        compared = [_signed(found), chance(found), f"{row.adjusted_p:.2g}"]
    others = [f"{100 * each.mean:.1f}" for metric, each in row.metrics.items() if metric != comparison.metric]
    return [str(row.rank), name, _plain(main), *compared, *others, *costs(row)]


def costs(row: Row) -> list[str]:
    """Return seconds and megabytes of a run."""
    return [f"{row.seconds:.1f}", f"{row.peak_memory / 2**20:.0f}"]


def chance(found: Estimate) -> str:
    """Return the probability that a difference is above 0."""
    chance = found.probability
    return "<0.001" if chance < 0.0005 else ">0.999" if chance >= 0.9995 else f"{chance:.3f}"


def _plain(found: Estimate) -> str:
    """Return a metric with its interval, which by Student's t may reach beyond what a metric can be."""
    low, high = max(0.0, found.low), min(1.0, found.high)
    return f"{100 * found.mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _signed(found: Estimate) -> str:
    mean, low, high = (round(100 * value, 1) + 0.0 for value in (found.mean, found.low, found.high))  # + 0.0: no -0.0
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
