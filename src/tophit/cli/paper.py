"""The command paper."""

from pathlib import Path
from typing import Annotated

import typer

from tophit.cli.shell import Verbose, app, console
from tophit.errors import UsageError


@app.command(
    epilog="Examples: tophit paper --list · tophit paper topk/table-1 --data sets/CUB_200_2011 --out runs/topk-table-1 "
    "· tophit paper runs/topk-table-1 (continues) · tophit paper runs/topk-table-1 --worker (another process joins) · "
    "tophit paper profs/table-1 --data sets/CUB_200_2011 --out runs/short --rows T-PROFS,Triplet-Hard --epochs 4 "
    "--embedder size=112 --seeds 3"
)
def paper(
    name: Annotated[
        str | None, typer.Argument(help="A table or figure, such as topk/table-1, or a folder to continue.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="The set's folder; cub200:FOLDER also says which set it is.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for its runs, table and figures.")] = None,
    rows: Annotated[
        list[str] | None, typer.Option("--rows", help="Only these rows, separated by commas (repeatable).")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each row.")] = 1,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Epochs of every run; rates fall at the same shares of it.")
    ] = None,
    embedder: Annotated[
        list[str] | None,
        typer.Option("--embedder", help="Change the embedder: size=112, trainable=last, weights=FILE (repeatable)."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override any field of the recipes (repeatable).")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Runs at the same time; 0: one per core.")] = 0,
    worker: Annotated[bool, typer.Option("--worker", help="Only help with the runs of the folder NAME.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat runs that failed.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Only write the table, from finished runs.")] = False,
    list_all: Annotated[
        bool, typer.Option("--list", help="List all tables and figures, with the time they would take here.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Train all rows of a paper's table, or what a figure shows, and put our numbers beside the paper's."""
    if list_all:
        _print_list()
        return
    if name is None:
        raise UsageError("Name a table or figure, such as topk/table-1; 'tophit paper --list' lists them.")
    from tophit.papers.entries import find_entry
    from tophit.papers.reproduction import Choice, begin, is_reproduction, reopen

    if worker:
        from tophit.comparing.workers import work

        console.print(f"Did {work(reopen(Path(name)).store.folder)} runs; none are left.", highlight=False)
        return
    made = None
    if is_reproduction(name):
        if data or rows or epochs or embedder or overrides:
            raise UsageError(f"{name} continues as it was begun; leave out all but --workers, --retry and --report.")
        made, out = reopen(Path(name)), Path(name)
    else:
        entry = find_entry(name)
        if out is None:
            raise UsageError("Name the folder for its runs and files: --out runs/NAME.")
        if not entry.is_computed:
            if data is None:
                raise UsageError(f"{name} needs data: --data FOLDER, with the files of {' or '.join(entry.sets)}.")
            chosen = [each.strip() for group in rows or [] for each in group.split(",")]
            changes = [*(f"embedder.{each}" for each in embedder or []), *(overrides or [])]
            made = begin(name, data, out, Choice(chosen, seeds, epochs, changes))
    from tophit.papers.paper_outputs import to_terminal
    from tophit.papers.reproduce import compute_entry, reproduce
    from tophit.progress import TerminalView

    view = TerminalView(console)
    found = compute_entry(name, out) if made is None else reproduce(made, workers, view, not report, retry)
    if found.rows:
        console.print(to_terminal(found))
    for note in found.notes:
        console.print(note, highlight=False, markup=False)
    for row in found.rows:
        if row.failed:
            console.print(f"Failed: {row.name}, {row.failed}", highlight=False, markup=False)
    console.print(f"Written: {out / 'table.html'}, .md, .csv, .json", highlight=False, soft_wrap=True)


def _print_list() -> None:
    from rich.table import Column, Table

    from tophit.papers.estimates import estimates
    from tophit.progress import TerminalView

    right = {"justify": "right", "no_wrap": True}
    heads = (
        Column("name", no_wrap=True),
        "set",
        Column("rows", **right),
        Column("one seed", **right),
        "what",
        "columns",
    )
    table = Table(*heads, box=None, pad_edge=False)
    for each in estimates(TerminalView(console).track("Measuring steps")):
        rows = f"{each.rows} + {each.quoted}" if each.quoted else str(each.rows or "")
        table.add_row(
            each.name, each.set_name, rows, _time(each.hours) if each.rows else "", each.caption, " ".join(each.columns)
        )
    console.print(table)
    console.print(
        "Rows: those that are trained + those only quoted. One seed: on this machine, from two measured steps of each "
        "network. To make it affordable: --rows, --epochs, --embedder size=112, --embedder trainable=head.",
        highlight=False,
    )


def _time(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
