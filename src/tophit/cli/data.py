"""The commands under data: build and check manifests."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from tophit.cli.shell import Verbose, app, console, errors
from tophit.errors import UsageError
from tophit.registry import entries
from tophit.wording import counted

if TYPE_CHECKING:
    from tophit.data.manifest import Manifest

data_app = typer.Typer(help="Build and check manifests: tables of images with labels.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a manifest that exists.")]


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
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Write a manifest for a folder of class folders (or of train/ and test/, or query/ and gallery/)."""
    from tophit.data.folders import manifest_from_folder
    from tophit.data.manifest import write_manifest

    _check_new(out, overwrite)
    manifest = manifest_from_folder(folder, test_share, seed)
    write_manifest(manifest, out)
    _tell_left_out(manifest)
    console.print(f"{_size(manifest)}: {out}", highlight=False)


@data_app.command("query-gallery", epilog="Example: tophit data query-gallery photos/ catalogue/ --out test.csv")
def data_query_gallery(
    query: Annotated[Path, typer.Argument(help="Class folders of images to search for.")],
    gallery: Annotated[Path, typer.Argument(help="Class folders of images to be found.")],
    out: Annotated[Path, typer.Option("--out", help="The manifest to write: .csv or .parquet.")],
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Write a test manifest from two folders: queries and gallery."""
    from tophit.data.folders import manifest_from_query_gallery
    from tophit.data.manifest import write_manifest

    _check_new(out, overwrite)
    manifest = manifest_from_query_gallery(query, gallery)
    write_manifest(manifest, out)
    _tell_left_out(manifest)
    console.print(f"{_size(manifest)}: {out}", highlight=False)


@data_app.command("check", epilog="Example: tophit data check images.csv --out problems.csv")
def data_check(
    data: Annotated[str, typer.Argument(help="A manifest, a folder of class folders, or the set 'icons'.")],
    out: Annotated[Path | None, typer.Option("--out", help="Also write the problems as CSV.")] = None,
    verbose: Verbose = False,
) -> None:
    """Open every image and report what is wrong; the exit code is 1 if images can't be read or classes are too few."""
    from tophit.data.check import KINDS, TOO_FEW, check_manifest, write_problems
    from tophit.data.folders import open_data
    from tophit.progress import TerminalView

    manifest = open_data(data)
    _tell_left_out(manifest)
    problems = check_manifest(manifest, TerminalView(errors).track("Checking"))
    if out is not None:
        write_problems(problems, out)
    found = counted(len(problems), "problem")
    table = Table("problem", "row", "detail", title=f"{counted(len(manifest), 'image')}, {found}")
    for problem in problems[:200]:
        table.add_row(problem.kind, ", ".join(map(str, problem.rows[:6])), escape(problem.detail))
    if problems:
        console.print(table)
    counts = {kind: sum(problem.kind == kind for problem in problems) for kind in KINDS}
    console.print(f"{_size(manifest)}: " + ", ".join(f"{kind} {count}" for kind, count in counts.items()))
    if counts["unreadable"] or counts[TOO_FEW]:
        raise typer.Exit(1)


def _tell_left_out(manifest: "Manifest") -> None:
    if manifest.left_out:
        errors.print(manifest.left_out, highlight=False, markup=False, soft_wrap=True)


def _check_new(out: Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise UsageError(f"{out} exists; name another file, or add --overwrite to replace it.")


def _size(manifest: "Manifest") -> str:
    return f"{counted(len(manifest), 'image')} of {counted(len(set(manifest.labels)), 'class')}"


_Root = Annotated[Path, typer.Option("--root", help="The folder into which the set's archives were unpacked.")]
_Out = Annotated[Path, typer.Option("--out", help="The manifest to write: .csv or .parquet.")]
_Partial = Annotated[bool, typer.Option("--partial", help="Continue even if images are missing or counts differ.")]
_Levels = Annotated[
    str, typer.Option("--levels", help="Columns above the label that make it a path, from the coarsest: order,family.")
]
_Boxes = Annotated[bool, typer.Option("--boxes", help="Crop every image to its object, where the set has boxes.")]


def _add(name: str, title: str) -> None:
    @data_app.command(
        name,
        help=f"Write a manifest for {title}, checked against the published counts.",
        epilog=f"Example: tophit data {name} --root sets/{name} --out {name}.csv",
    )
    def command(
        root: _Root,
        out: _Out,
        partial: _Partial = False,
        boxes: _Boxes = False,
        levels: _Levels = "",
        overwrite: Overwrite = False,
        verbose: Verbose = False,
    ):
        _check_new(out, overwrite)
        _write_set(name, root, out, partial, boxes, [each for each in levels.split(",") if each])


def _write_set(name: str, root: Path, out: Path, partial: bool, boxes: bool, levels: list[str]) -> None:
    from tophit.data.levels import with_levels
    from tophit.data.manifest import write_manifest
    from tophit.data.sets import read_set, set_named
    from tophit.data.sets.benchmark import count_parts

    manifest = with_levels(read_set(name, root, partial, boxes), levels)
    write_manifest(manifest, out)
    chosen = set_named(name)
    table = Table("part", "classes", "images", "published classes", "images", title=chosen.title)
    for found, published in zip(count_parts(chosen.counts, manifest.rows), chosen.counts, strict=True):
        counts = (found.classes, found.images, published.classes, published.images)
        table.add_row(found.part, *(f"{count:,}" for count in counts))
    console.print(table)
    console.print(f"{_size(manifest)}: {out}", highlight=False)


for _entry in entries("set"):
    _add(_entry.name, str(_entry.facts.get("title", _entry.name)))
