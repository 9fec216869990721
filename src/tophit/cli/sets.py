"""The commands under data that read benchmark sets, one command per set."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tophit.cli.data import data_app
from tophit.cli.shell import Verbose, console
from tophit.registry import entries

_Root = Annotated[Path, typer.Option("--root", help="The folder into which the set's archives were unpacked.")]
_Out = Annotated[Path, typer.Option("--out", help="The manifest to write: .csv or .parquet.")]
_Partial = Annotated[bool, typer.Option("--partial", help="Continue even if images are missing or counts differ.")]
_Boxes = Annotated[bool, typer.Option("--boxes", help="Crop every image to its object, where the set has boxes.")]


def _add(name: str, title: str) -> None:
    @data_app.command(
        name,
        help=f"Write a manifest for {title}, checked against the published counts.",
        epilog=f"Example: tophit data {name} --root sets/{name} --out {name}.csv",
    )
    def command(root: _Root, out: _Out, partial: _Partial = False, boxes: _Boxes = False, verbose: Verbose = False):
        _write_set(name, root, out, partial, boxes)


def _write_set(name: str, root: Path, out: Path, partial: bool, boxes: bool) -> None:
    from tophit.data.manifest import write_manifest
    from tophit.data.sets import read_set, set_named
    from tophit.data.sets.benchmark import count_parts

    manifest = read_set(name, root, partial, boxes)
    write_manifest(manifest, out)
    chosen = set_named(name)
    table = Table("part", "classes", "images", "published classes", "images", title=chosen.title)
    for found, published in zip(count_parts(chosen.counts, manifest.rows), chosen.counts, strict=True):
        counts = (found.classes, found.images, published.classes, published.images)
        table.add_row(found.part, *(f"{count:,}" for count in counts))
    console.print(table)
    console.print(f"{len(manifest)} images of {len(set(manifest.labels))} classes: {out}", highlight=False)


for _entry in entries("set"):
    _add(_entry.name, str(_entry.facts.get("title", _entry.name)))
