"""The command embed."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tophit.cli.shell import RunOption, Verbose, app, console


@app.command(
    epilog="Examples: tophit embed photos/ --run runs/mine --out vectors · "
    "torchrun --nproc-per-node 4 -m -- tophit.cli embed photos/ --run runs/mine --out vectors"
)
def embed(
    data: Annotated[str, typer.Argument(help="A manifest, a folder of images, or the set 'icons'.")],
    run: RunOption,
    out: Annotated[Path, typer.Option("--out", help="The folder to write the vectors to.")],
    split: Annotated[str, typer.Option("--split", help="Which rows: train, validation, test, or all.")] = "all",
    runtime: Annotated[
        str | None,
        typer.Option("--runtime", "--engine", help="onnxruntime, openvino, torch, torch-contiguous or compiled."),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", help="fp32, or bf16: faster where the CPU supports it.")
    ] = "fp32",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Images per batch.")] = 64,
    device: Annotated[
        str, typer.Option("--device", help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps.")
    ] = "auto",
    rows_a_part: Annotated[
        int, typer.Option("--part", min=1, help="Images per part; an interruption loses at most one.")
    ] = 2048,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes that read images.")] = 0,
    ray: Annotated[
        int, typer.Option("--ray", min=0, help="Processes of a Ray cluster (RAY_ADDRESS, or this machine) that share.")
    ] = 0,
    verbose: Verbose = False,
) -> None:
    """Write the vectors of images as Parquet parts; run the same command again to continue after a stop."""
    from tophit.api import images_for
    from tophit.embedding.vector_parts import check_parts_folder
    from tophit.models.named import check_model
    from tophit.models.running import check_device, check_runtime

    check_parts_folder(out)
    check_model(run)
    check_runtime(runtime, precision)
    check_device(device)
    part = images_for(data, run, split)
    import time

    from tophit.embedding.folder import embed_to_folder
    from tophit.models import load
    from tophit.progress import TerminalView
    from tophit.training.devices import choose_device

    view = TerminalView(console)
    if part.left_out:
        view.note(part.left_out)
    start = time.monotonic()
    settings: dict[str, Any] = {
        "runtime": runtime,
        "precision": precision,
        "batch": batch,
        "rows_a_part": rows_a_part,
    }
    if ray:
        from tophit.embedding.on_ray import embed_on_ray

        place = str(choose_device(device))
        found = embed_on_ray(run, part.rows, out, processes=ray, device=place, **settings)
    else:
        found = embed_to_folder(
            load(run).to(choose_device(device)),
            part.rows,
            out,
            model=run,
            **settings,
            workers=workers,
            rank=int(os.environ.get("RANK", "0")),
            world=int(os.environ.get("WORLD_SIZE", "1")),
            progress=view.track("Embedding"),
        )
    for row, reason in found.bad.items():
        view.note(f"Skipped row {part.number(row)}: {reason}")
    rest = "" if found.complete else " Other processes are still working."
    took = f"{found.runtime}, {time.monotonic() - start:.0f} s"
    console.print(f"{found.count} vectors are in {out} ({took}).{rest}", highlight=False, soft_wrap=True)
