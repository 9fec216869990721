"""A comparison from beginning to end: its folder, its workers, its tables."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tophit.compare.outputs import write_outputs
from tophit.compare.plan import make_plan, read_plan
from tophit.compare.presets import preset_fields
from tophit.compare.store import Store
from tophit.compare.summary import Comparison, summarise
from tophit.compare.work import run_workers
from tophit.data.folders import whole_path
from tophit.errors import UsageError
from tophit.progress import View
from tophit.recipe import merged

if TYPE_CHECKING:
    from tophit.report.drawing import Drawing


def open_comparison(
    plan: str | None, preset: str | None, data: str | None, out: Path | None, budget: dict[str, Any]
) -> Store:
    """Begin a comparison by a plan or a preset in the folder ``out``, or open the one in the folder ``plan``.

    ``data`` and ``budget`` (seeds, trials, epochs; None: as it is) change the plan.
    """
    if (plan is None) == (preset is None):
        raise UsageError(
            "Name a plan, a comparison's folder, or a preset: tophit compare --preset quick --data images/."
        )
    changes: dict[str, Any] = {"budget": {name: value for name, value in budget.items() if value is not None}}
    if data is not None:
        changes["data"] = {"manifest": data}
    if plan is not None and Path(plan).is_dir():
        store = Store(Path(plan))
        fields = store.plan().model_dump(mode="json")
    else:
        if out is None:
            raise UsageError("Name the comparison's folder: --out runs/NAME.")
        store = Store(out)
        fields = preset_fields(preset) if preset is not None else read_plan(str(plan)).model_dump(mode="json")
        if preset is not None and data is None:
            raise UsageError("A preset names no data: --data PATH, or 'icons'.")
    made = make_plan(merged(fields, changes), preset or str(plan))
    store.begin(made.model_copy(update={"data": {**made.data, "manifest": whole_path(made.data["manifest"])}}))
    return store


def figures_of(store: Store, found: Comparison, view: View) -> "list[Drawing]":
    """Return a comparison's figures; none where matplotlib is not installed, which a note says."""
    from tophit.report.style import has_matplotlib

    if not has_matplotlib():
        view.note("The page has no figures: they need matplotlib, pip install 'tophit[report]'.")
        return []
    from tophit.report.figures.comparison import comparison_drawings

    return comparison_drawings(found, store.plan(), store)


def run_comparison(
    store: Store,
    workers: int = 0,
    storage: str | None = None,
    view: View | None = None,
    train: bool = True,
    retry: bool = False,
) -> Comparison:
    """Do what is left of a comparison with so many workers (0: one a core), then compute and write its tables.

    ``retry`` does runs again that failed, as on a full disk; without ``train`` only the tables are made.
    """
    plan = store.plan()
    if retry:
        store.forget_failures(plan)
    if train:
        run_workers(plan, store, workers or os.cpu_count() or 1, storage, view or View())
    found = summarise(plan, store)
    write_outputs(found, store.folder, figures_of(store, found, view or View()))
    return found
