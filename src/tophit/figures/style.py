"""The look of all figures: column widths of a paper, one font, colours that colour-blind readers can tell apart."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tophit.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.3  # inches: one column of a paper
PAGE = 6.9  # both columns
INK = "#1b1c22"  # axes and text
SURFACE = "#fefefe"  # the inside of a hollow marker; not quite white, so that a page can replace it with its own
# Okabe and Ito's colours, in an order in which neighbours differ in lightness too.
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), "-", "-", "-")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_FONT = 8  # points

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are the same everywhere
    "font.size": _FONT,
    "mathtext.fontset": "dejavusans",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlesize": _FONT,
    "axes.labelsize": _FONT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": _FONT - 1,
    "ytick.labelsize": _FONT - 1,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.fontsize": _FONT - 1,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.borderaxespad": 0.2,
    "axes.unicode_minus": True,
}


def import_matplotlib() -> Any:
    """Return matplotlib, or say how to install it."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("Figures need matplotlib, which is not installed: pip install 'tophit[report]'.") from error
    return matplotlib


def has_matplotlib() -> bool:
    """Say whether matplotlib is installed, without importing it."""
    return find_spec("matplotlib") is not None


@contextmanager
def house_style(further: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Use the look of all figures inside this block, whatever the user's own settings are.

    Saving needs it too, because matplotlib creates ticks only when it draws them.
    """
    matplotlib = import_matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_SETTINGS, **(further or {})})
        yield


def new_figure(width: float = COLUMN, height: float = 2.2) -> "Figure":
    """Return an empty figure of a size in inches, without pyplot's global state."""
    import_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def new_axes(width: float = COLUMN, height: float = 2.2) -> "tuple[Figure, Axes]":
    """Return a figure with one pair of axes."""
    figure = new_figure(width, height)
    return figure, figure.add_subplot()


def series(number: int) -> dict[str, Any]:
    """Return the colour and the dashes of a line by its number, from 0."""
    return {"color": SERIES[number % len(SERIES)], "linestyle": DASHES[number % len(DASHES)]}
