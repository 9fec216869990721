"""A comparison, once it was begun, to its end: its workers, its tables, figures and page."""

import os
from pathlib import Path

from tophit.comparing.comparison_page import to_html
from tophit.comparing.drawings import comparison_drawings
from tophit.comparing.outputs import to_csv, to_markdown
from tophit.comparing.plan import Plan, recipe_of
from tophit.comparing.store import Store
from tophit.comparing.summary import Comparison, summarise
from tophit.comparing.workers import run_workers
from tophit.errors import UsageError
from tophit.figures import Drawing, has_matplotlib, import_matplotlib, write_drawings
from tophit.files import write_json, write_text
from tophit.progress import View


def run_comparison(
    store: Store,
    workers: int = 0,
    storage: str | None = None,
    view: View | None = None,
    train: bool = True,
    retry: bool = False,
) -> Comparison:
    """Finish a comparison with so many workers (0: one per core), then compute its results and write its files.

    ``retry`` repeats runs that failed, as on a full disk; without ``train`` only the results are computed.
    """
    plan = store.plan()
    if retry:
        store.forget_failures(plan)
    if train:
        run_workers(plan, store, workers or os.cpu_count() or 1, storage, view or View())
        from tophit.comparing.untrained import measure_untrained  # here, because it imports torch

        measure_untrained(plan, store, view or View())
    found = summarise(plan, store)
    keep_winner(plan, store, found)
    write_outputs(found, store.folder, figures_of(store, found, view or View()))
    return found


def keep_winner(plan: Plan, store: Store, found: Comparison) -> None:
    """Write the recipe of the recommended candidate, with the settings that its search found; none if untrained."""
    if found.winner not in plan.candidates:
        store.winner_path.unlink(missing_ok=True)
        return
    row = next(row for row in found.rows if row.name == found.winner)
    recipe = recipe_of(plan, found.winner, 0, row.settings)
    usual = recipe.evaluation.model_copy(update={"before": True, "per_query": False})
    write_text(store.winner_path, recipe.model_copy(update={"evaluation": usual}).to_yaml())


def compare_report(
    folder: str | Path, out: Path | None = None, figures: Path | None = None, view: View | None = None
) -> tuple[Path, str]:
    """Write a comparison's page to ``out`` (default: ``comparison.html`` in its folder) from its finished runs.

    ``figures`` is a folder for its figures as files. Returns the path of the page and the recommendation.
    """
    store = Store(Path(folder))
    found = summarise(store.plan(), store)
    path = out or store.folder / "comparison.html"
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent} for {path.name}.")
    if figures is not None:
        import_matplotlib()  # the user asks for figures, so without matplotlib this is an error
    drawings = figures_of(store, found, view or View())
    write_text(path, to_html(found, drawings))
    if figures is not None:
        write_drawings(drawings, figures)
    return path, found.recommendation


def figures_of(store: Store, found: Comparison, view: View) -> list[Drawing]:
    """Return a comparison's figures; none, and a note, if matplotlib is not installed."""
    if not has_matplotlib():
        view.note("The page has no figures: they need matplotlib, pip install 'tophit[report]'.")
        return []
    return comparison_drawings(found, store.plan(), store)


def write_outputs(comparison: Comparison, folder: Path, drawings: list[Drawing] | None = None) -> list[Path]:
    """Write ``comparison.json``, ``.csv``, ``.md`` and ``.html``, with figures, into a folder; return their paths."""
    paths = [folder / f"comparison.{suffix}" for suffix in ("json", "csv", "md", "html")]
    write_json(paths[0], comparison.to_json())
    for path, text in zip(
        paths[1:], (to_csv(comparison), to_markdown(comparison), to_html(comparison, drawings or ())), strict=True
    ):
        write_text(path, text)
    return paths
