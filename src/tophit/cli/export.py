"""The command export."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tophit.cli.shell import Verbose, app, console


@app.command(epilog="Example: tophit export runs/mine --out mine.onnx")
def export(
    model: Annotated[str, typer.Argument(help="A run, an embedder's folder, or a backbone's name.")],
    out: Annotated[Path, typer.Option("--out", help="The .onnx file to write; its preprocessing goes next to it.")],
    verbose: Verbose = False,
) -> None:
    """Export a model to ONNX (images to unit vectors) and, if onnxruntime is installed, check it against torch."""
    from tophit.models.named import check_model, check_onnx_file

    check_model(model)  # these before torch, whose import takes long
    check_onnx_file(out)
    from tophit.models import load
    from tophit.models.exported import TOLERANCE, export_embedder

    found = export_embedder(load(model), out, model)
    console.print(f"Written: {found.graph} and {found.description}", highlight=False, soft_wrap=True)
    if found.difference is None:
        console.print("onnxruntime is not installed, so the file was not checked.")
        return
    console.print(f"Its vectors differ from torch's by {found.difference:.1e} at most (allowed: {TOLERANCE:.0e}).")
    table = Table("batch", "torch, images/s", "onnxruntime, images/s", "times faster")
    for batch, (torch_speed, onnx_speed) in found.speeds.items():
        table.add_row(str(batch), f"{torch_speed:.0f}", f"{onnx_speed:.0f}", f"{onnx_speed / torch_speed:.1f}")
    console.print(table)
