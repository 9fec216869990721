"""The commands under data: build and check manifests."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from tophit.cli.shell import Verbose, app, console, errors

data_app = typer.Typer(help="Build and check manifests: tables of images with labels.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.command("icons", epilog="Example: tophit data icons")
def data_icons(verbose: Verbose = False) -> None:
    """Build the demo set of icons in the cache and print its path."""
    from tophit.data.icons import icon_set

    manifest = icon_set()
    console.print(
        f"{len(manifest)} images of {len(set(manifest.labels))} icons: {manifest.source}",
        highlight=False,
        soft_wrap=True,
    )


@data_app.command("folder", epilog="Example: tophit data folder images/ --out images.csv --test-share 0.5")
def data_folder(
    folder: Annotated[Path, typer.Argument(help="A folder with one sub-folder per class.")],
    out: Annotated[Path, typer.Option("--out", help="The manifest to write: .csv or .parquet.")],
    test_share: Annotated[float, typer.Option(min=0, max=1, help="Share of the classes for testing.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed for choosing the test classes.")] = 0,
    verbose: Verbose = False,
) -> None:
    """Write a manifest for a folder of class folders (or of train/ and test/, or query/ and gallery/)."""
    from tophit.data.folders import manifest_from_folder
    from tophit.data.manifest import write_manifest

    manifest = manifest_from_folder(folder, test_share, seed)
    write_manifest(manifest, out)
    console.print(f"{len(manifest)} images of {len(set(manifest.labels))} classes: {out}", highlight=False)


@data_app.command("query-gallery", epilog="Example: tophit data query-gallery photos/ catalogue/ --out test.csv")
def data_query_gallery(
    query: Annotated[Path, typer.Argument(help="Class folders of images to search for.")],
    gallery: Annotated[Path, typer.Argument(help="Class folders of images to be found.")],
    out: Annotated[Path, typer.Option("--out", help="The manifest to write: .csv or .parquet.")],
    verbose: Verbose = False,
) -> None:
    """Write a test manifest from two folders: queries and gallery."""
    from tophit.data.folders import manifest_from_query_gallery
    from tophit.data.manifest import write_manifest

    manifest = manifest_from_query_gallery(query, gallery)
    write_manifest(manifest, out)
    console.print(f"{len(manifest)} images of {len(set(manifest.labels))} classes: {out}", highlight=False)


@data_app.command("check", epilog="Example: tophit data check images.csv --out problems.csv")
def data_check(
    data: Annotated[str, typer.Argument(help="A manifest, a folder of class folders, or the set 'icons'.")],
    out: Annotated[Path | None, typer.Option("--out", help="Also write the problems as CSV.")] = None,
    verbose: Verbose = False,
) -> None:
    """Open every image and report what is wrong; the exit code is 1 if an image can't be read."""
    from tophit.data.check import KINDS, check_manifest, write_problems
    from tophit.data.folders import open_data
    from tophit.progress import TerminalView

    manifest = open_data(data)
    problems = check_manifest(manifest, TerminalView(errors).track("Checking"))
    if out is not None:
        write_problems(problems, out)
    found = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    table = Table("problem", "row", "detail", title=f"{len(manifest)} images, {found}")
    for problem in problems[:200]:
        table.add_row(problem.kind, ", ".join(map(str, problem.rows[:6])), escape(problem.detail))
    if problems:
        console.print(table)
    counts = {kind: sum(problem.kind == kind for problem in problems) for kind in KINDS}
    console.print(f"{len(manifest)} images: " + ", ".join(f"{kind} {count}" for kind, count in counts.items()))
    if counts["unreadable"]:
        raise typer.Exit(1)
