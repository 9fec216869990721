"""The command report."""

from pathlib import Path
from typing import Annotated

import typer

from tophit.cli.shell import Verbose, app, console, errors


@app.command(
    epilog="Examples: tophit report runs/mine · tophit report runs/new --against runs/old · "
    "tophit report runs/mine --figures figures/"
)
def report(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or of a comparison.")],
    against: Annotated[
        str | None, typer.Option("--against", help="Another run, an embedder's folder or a backbone's name.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="The run's data, if they have moved since the training.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The page to write; default: RUN/report.html.")] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Folder for each figure as PNG, SVG, PDF and its numbers as CSV.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Write a page on what a run's model finds: galleries, worst queries, the map, two models side by side."""
    from tophit import api
    from tophit.progress import TerminalView

    written = api.report(run, against=against, data=data, out=out, figures=figures, progress=TerminalView(errors))
    console.print(written.verdict, highlight=False)
    size = f"{written.page.stat().st_size / 1e6:.1f} MB"
    also = "" if written.problems is None else f" and {written.problems.name}"
    done = "Written" if written.is_new else "Nothing has changed since it was made"
    console.print(f"{done}: {written.page} ({size}){also}", highlight=False, soft_wrap=True)
    if figures is not None:
        console.print(f"Figures: {len(written.figures)} files in {figures}", highlight=False, soft_wrap=True)
