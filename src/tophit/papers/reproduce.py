"""From the name of a paper's table or figure to its files: train what is missing, then write the table and figures."""

import os
from pathlib import Path

from tophit.comparing.workers import run_workers
from tophit.figures import Drawing, has_matplotlib, write_drawings
from tophit.files import write_json, write_text
from tophit.papers.computed import compute
from tophit.papers.measured_rows import MeasuredTable, measure
from tophit.papers.paper_drawings import paper_drawings
from tophit.papers.paper_outputs import to_csv, to_html, to_markdown
from tophit.papers.reproduction import Reproduction
from tophit.progress import View


def reproduce(
    made: Reproduction, workers: int = 0, view: View | None = None, train: bool = True, retry: bool = False
) -> MeasuredTable:
    """Finish the runs of a table or figure with so many workers (0: one per core), and write its files.

    ``retry`` repeats runs that failed; without ``train`` the files are made from the runs that are finished.
    """
    view = view or View()
    plan = made.store.plan()
    if retry:
        made.store.forget_failures(plan)
    if train:
        run_workers(plan, made.store, workers or os.cpu_count() or 1, None, view, "tophit paper")
    found = measure(made)
    _write(found, _drawings(made, found, view), made.store.folder)
    return found


def compute_entry(name: str, out: Path) -> MeasuredTable:
    """Write a table or figure that follows from equations alone; it needs no data."""
    found, drawings = compute(name)
    out.mkdir(parents=True, exist_ok=True)
    _write(found, drawings, out)
    return found


def _drawings(made: Reproduction, found: MeasuredTable, view: View) -> list[Drawing]:
    if made.entry.draws == "table":
        return []
    if not has_matplotlib():
        view.note("There are no figures: they need matplotlib, pip install 'tophit[report]'.")
        return []
    return paper_drawings(made, found, view)


def _write(found: MeasuredTable, drawings: list[Drawing], folder: Path) -> None:
    """Write ``table.md``, ``.csv``, ``.html`` and ``.json`` into a folder, and its figures into ``figures``."""
    write_json(folder / "table.json", found.to_json())
    write_text(folder / "table.csv", to_csv(found))
    write_text(folder / "table.md", to_markdown(found))
    write_text(folder / "table.html", to_html(found, drawings))
    if drawings:
        write_drawings(drawings, folder / "figures")
