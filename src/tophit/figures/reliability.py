"""Figures of a calibration: told against right, known against unknown queries, and what a cut-off costs."""

from tophit.evaluation.calibration_check import CalibrationCheck
from tophit.figures.drawing import Drawing
from tophit.figures.style import COLUMN, INK, SERIES, house_style, new_axes, series

_DIAGONAL = {"color": INK, "linewidth": 0.6, "linestyle": (0, (1, 2))}


def calibration_drawings(check: CalibrationCheck, unknown: float) -> list[Drawing]:
    """Return the reliability curve, the open-set ROC if there were unknown queries, and the cost of cut-offs."""
    roc = [_open_set(check)] if check.roc else []
    return [_reliability(check, unknown), *roc, _cut_offs(check)]


def _reliability(check: CalibrationCheck, unknown: float) -> Drawing:
    rows = check.reliability
    told, right, low, high = ([100 * row[name] for row in rows] for name in ("told", "right", "low", "high"))
    with house_style():
        figure, axes = new_axes(COLUMN, 2.7)
        axes.plot([0, 100], [0, 100], label="as told", **_DIAGONAL)
        around = [[value - each for value, each in zip(right, low, strict=True)]]
        around += [[each - value for value, each in zip(right, high, strict=True)]]
        axes.errorbar(told, right, around, fmt="o-", capsize=2, color=SERIES[0], elinewidth=0.8, label="right")
        axes.set(xlabel="chance told (%)", ylabel="right (%)", xlim=(0, 102), ylim=(0, 102))
        figure.legend(loc="outside upper left", ncols=2)
    numbers = {"told": [row["told"] for row in rows], "right": [row["right"] for row in rows]}
    numbers |= {name: [row[name] for row in rows] for name in ("low", "high", "results")}
    caption = (
        f"The first ten results of queries of classes that did not calibrate, {unknown:.0%} of them without their "
        "class in the gallery: the chance told, and the share that was right, with 95% intervals over classes."
    )
    return Drawing("reliability", "Chances told and right results", caption, numbers, figure)


def _open_set(check: CalibrationCheck) -> Drawing:
    wrong, right = ([100 * point[side] for point in check.roc] for side in (0, 1))
    value, low, high = check.open_set["auroc"]
    with house_style():
        figure, axes = new_axes(COLUMN, 2.7)
        axes.plot(wrong, right, label=f"names (AUROC {100 * value:.1f})", **series(0))
        axes.plot([0, 100], [0, 100], label="guessing", **_DIAGONAL)
        axes.set(xlabel="unknown taken for known (%)", ylabel="known taken for known (%)", xlim=(0, 102), ylim=(0, 102))
        figure.legend(loc="outside upper left", ncols=2)
    numbers = {"unknown taken for known": [x / 100 for x in wrong], "known taken for known": [y / 100 for y in right]}
    measured = {"accuracy": "known queries are named rightly", "unknown_told": "unknown ones are told as unknown"}
    parts = [
        f"{100 * check.open_set[name][0]:.0f}% ({100 * check.open_set[name][1]:.0f} to "
        f"{100 * check.open_set[name][2]:.0f}) of {words}"
        for name, words in measured.items()
        if name in check.open_set
    ]
    caption = (
        "How well the chance of a name tells queries whose class is in the gallery from those whose class is not. The "
        f"area under the curve is {100 * value:.1f}% (95% interval over classes {100 * low:.1f} to {100 * high:.1f}). "
        f"At a cut-off of 50%, {' and '.join(parts).replace(' of ', ' of the ', 1)}."
    )
    return Drawing("open_set_roc", "Known and unknown queries", caption, numbers, figure)


def _cut_offs(check: CalibrationCheck) -> Drawing:
    rows = [row for row in check.cut_offs if "kept" in row]
    chances = [100 * row["chance"] for row in rows]
    with house_style():
        figure, axes = new_axes(COLUMN, 2.7)
        for number, (name, words) in enumerate((("kept", "right results kept"), ("right", "right among those shown"))):
            some = [row for row in rows if name in row]
            places = [100 * row["chance"] for row in some]
            low, high = ([100 * row[f"{name}_{side}"] for row in some] for side in ("low", "high"))
            axes.fill_between(places, low, high, color=SERIES[number], alpha=0.2, linewidth=0)
            axes.plot(places, [100 * row[name] for row in some], label=words, **series(number))
        axes.set(xlabel="least chance (%)", ylabel="results (%)", xlim=(0, 96), ylim=(0, 102))
        figure.legend(loc="outside upper left", ncols=2)
    numbers: dict[str, list[float]] = {"least chance": [each / 100 for each in chances]}
    for name in ("kept", "right"):
        for column in (name, f"{name}_low", f"{name}_high"):
            numbers[column] = [row.get(column, float("nan")) for row in rows]
    caption = (
        "What --min-chance costs: the share of the right results among the first ten that is still shown, and how much "
        "of what is shown is right; bands are 95% intervals over classes."
    )
    return Drawing("cut_offs", "What a least chance costs", caption, numbers, figure)
