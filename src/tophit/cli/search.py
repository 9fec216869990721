"""The commands index and search."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from tophit.cli.shell import RunOption, Verbose, app, console, errors


@app.command(epilog="Example: tophit index images/ --run runs/mine --out mine.index")
def index(
    images: Annotated[str, typer.Argument(help="A manifest, a folder of images, or the set 'icons'.")],
    run: RunOption,
    out: Annotated[Path, typer.Option("--out", help="The folder of the index.")],
    split: Annotated[str, typer.Option("--split", help="Which rows: train, validation, test, or all.")] = "all",
    verbose: Verbose = False,
) -> None:
    """Embed images and write an index that can be searched."""
    from tophit.data.folders import open_images, part_of

    part = part_of(open_images(images), split)
    from tophit.models import load
    from tophit.progress import TerminalView
    from tophit.search.catalogue import build_catalogue

    view = TerminalView(console)
    catalogue, bad = build_catalogue(load(run), part.rows, out, view.track("Embedding"))
    for row, reason in bad.items():
        view.note(f"Skipped row {part.number(row)}: {reason}")
    command = f"tophit search {shlex.quote(str(out))} IMAGE"
    console.print(
        f"{len(catalogue.index)} images are in {out}. Search it with: {command}", highlight=False, soft_wrap=True
    )


@app.command(epilog="Example: tophit search mine.index query.png --k 10 --sheet out.png")
def search(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")],
    queries: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="The images to search for.")],
    k: Annotated[int, typer.Option("--k", min=1, help="How many results.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    sheet: Annotated[Path | None, typer.Option("--sheet", help="Also draw the results into this PNG.")] = None,
    verbose: Verbose = False,
) -> None:
    """Find the indexed images nearest to an image: rank, score, label, path."""
    from tophit.search.catalogue import open_catalogue

    found = open_catalogue(folder).search(queries, k)
    if as_json:
        _print_hits_as_json(queries, found)
    else:
        for query, hits in zip(queries, found, strict=True):
            console.print(_hits_table(query, hits))
    if sheet is not None:
        _draw_hits(queries, found, sheet)


def _hits_table(query: Path, hits: Any) -> Table:
    table = Table("rank", "score", "label", Column("path", overflow="fold"), title=escape(str(query)))
    for hit in hits:
        path, label = hit.metadata.get("path", hit.id), hit.metadata.get("label", "")
        table.add_row(str(hit.rank), f"{hit.score:.4f}", escape(str(label)), escape(str(path)))
    return table


def _print_hits_as_json(queries: list[Path], found: Any) -> None:
    import json

    answer = [
        {
            "query": str(query),
            "results": [{"rank": h.rank, "score": h.score, "id": h.id, **h.metadata} for h in hits],
        }
        for query, hits in zip(queries, found, strict=True)
    ]
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def _draw_hits(queries: list[Path], found: Any, sheet: Path) -> None:
    from tophit.report.sheet import SheetCell, contact_sheet

    rows = [
        (
            SheetCell(query, query.name),
            [SheetCell(Path(hit.metadata["path"]), f"{hit.metadata['label']}\n{hit.score:.3f}") for hit in hits],
        )
        for query, hits in zip(queries, found, strict=True)
    ]
    contact_sheet(rows, sheet)
    errors.print(f"Drawn into {sheet}", highlight=False, soft_wrap=True)
