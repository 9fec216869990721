"""What a report is asked for, checked before torch is imported, which takes long."""

import os
from pathlib import Path

from tophit.errors import UsageError
from tophit.models.named import check_model
from tophit.training.run import Run


def check_request(folder: Path, against: str | None, out: Path | None, figures: Path | None) -> Run:
    """Return the run in a folder; refuse one that is not finished, another model that is not there, and paths that name
    no page or no folder.
    """
    run = Run.open(folder)
    if run.result() is None:
        raise UsageError(f"The run in {folder} has not finished; tophit train --resume {folder} continues it.")
    if against is not None:
        check_model(against)
    _check_targets(out or folder / "report.html", figures)
    return run


def _check_targets(page: Path, figures: Path | None) -> None:
    if not page.parent.is_dir():
        raise UsageError(f"There is no folder {page.parent} for {page.name}.")
    if page.is_dir():
        raise UsageError(f"--out {page} is a folder; name a file, such as {page / 'report.html'}.")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UsageError(f"--figures {figures} is a file; name a folder.")


def check_writable(page: Path) -> None:
    """Raise if a page can't be written; one that stays as it is need not be."""
    if not os.access(page.parent, os.W_OK):
        raise UsageError(f"{page.parent} can't be written; name another place with --out.")
