"""The command report."""

from pathlib import Path
from typing import Annotated

import typer

from tophit.cli.shell import Verbose, app, console, errors
from tophit.errors import UsageError


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
    from tophit.compare.comparison import compare_report, is_comparison
    from tophit.progress import TerminalView

    view = TerminalView(errors)
    if is_comparison(run):
        if against is not None or data is not None:
            raise UsageError(f"{run} is a comparison: --against and --data are for the report of a run.")
        page, sentence = compare_report(run, out, figures, view)
        console.print(sentence, highlight=False)
        console.print(f"Written: {page}", highlight=False, soft_wrap=True)
        return
    from tophit.report.make import make_report

    written = make_report(run, against, data, out, figures, view=view)
    console.print(written.verdict, highlight=False)
    size = f"{written.page.stat().st_size / 1e6:.1f} MB"
    console.print(f"Written: {written.page} ({size}) and {written.problems.name}", highlight=False, soft_wrap=True)
    if figures is not None:
        console.print(f"Figures: {len(written.figures)} files in {figures}", highlight=False, soft_wrap=True)
