"""The report of a comparison: its page and its figures, from finished runs; nothing is trained."""

from pathlib import Path

from tophit.compare.page import to_html
from tophit.compare.run import figures_of
from tophit.compare.store import Store
from tophit.compare.summary import summarise
from tophit.errors import UsageError
from tophit.files import write_text
from tophit.progress import View
from tophit.report.drawing import write_drawings


def is_comparison(folder: str | Path) -> bool:
    """Say whether a folder is that of a comparison and not of a run."""
    return Store(Path(folder)).plan_path.is_file()


def compare_report(
    folder: str | Path, out: Path | None = None, figures: Path | None = None, view: View | None = None
) -> tuple[Path, str]:
    """Write a comparison's page to ``out`` (default: ``comparison.html`` in its folder) and its figures into a folder.

    Returns the page's path and the recommendation.
    """
    store = Store(Path(folder))
    found = summarise(store.plan(), store)
    path = out or store.folder / "comparison.html"
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent} to write {path.name} into.")
    if figures is not None:
        from tophit.report.style import import_matplotlib

        import_matplotlib()  # asked for, so that a missing one is an error
    drawings = figures_of(store, found, view or View())
    write_text(path, to_html(found, drawings))
    if figures is not None:
        write_drawings(drawings, figures)
    return path, found.recommendation
