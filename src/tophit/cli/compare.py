"""The command compare."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tophit.cli.shell import Verbose, app, console
from tophit.errors import UsageError


@app.command(
    epilog="Examples: tophit compare --preset quick --data images/ --out runs/quick · "
    "tophit compare plan.yaml --out runs/it · "
    "tophit compare runs/it (continues) · tophit compare runs/it --worker (another machine joins)"
)
def compare(
    plan: Annotated[
        str | None, typer.Argument(help="A plan (YAML), or the folder of a comparison to continue.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="A plan that comes with Tophit: quick, objectives or papers.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", help="A manifest, a feature file, a folder, 'icons'.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The comparison's folder.")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Measured runs of each candidate.")] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=0, help="Runs to search each candidate's settings; 0: no search.")
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Epochs of every run.")] = None,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Runs at the same time; 0: one per core.")] = 0,
    storage: Annotated[
        str | None, typer.Option("--storage", help="Address of a database for Optuna; default: a file in the folder.")
    ] = None,
    worker: Annotated[bool, typer.Option("--worker", help="Only help with the comparison in the folder PLAN.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat runs that failed, as on a full disk.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Only compute the tables again, from finished runs.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Find the method that suits your data: the same budget for all, several seeds, one look at the test classes."""
    changes: dict[str, Any] = {"seeds": seeds, "trials": trials, "epochs": epochs}
    if worker:
        if plan is None or preset or data:
            raise UsageError("--worker helps with a comparison that was started: tophit compare FOLDER --worker.")
        from tophit.comparing.workers import work

        console.print(f"Did {work(plan, storage)} runs; none are left.", highlight=False)
        return
    from tophit.comparing.opening import open_comparison
    from tophit.files import check_folder

    if out is not None:
        check_folder(out, "--out")
    store = open_comparison(plan, preset, data, out, changes)
    from tophit.comparing.comparison import run_comparison
    from tophit.comparing.outputs import to_table
    from tophit.progress import TerminalView

    found = run_comparison(store, workers, storage, TerminalView(console), train=not report, retry=retry)
    console.print(to_table(found))
    for name, reason in found.failed.items():
        console.print(f"Failed: {name}, {reason}", highlight=False, markup=False)
    console.print(f"\n{found.recommendation}", highlight=False, markup=False)
    console.print(f"To use it: {found.command}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"Written: {store.folder / 'comparison.html'}, .md, .csv, .json", highlight=False, soft_wrap=True)
