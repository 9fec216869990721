"""The command serve."""

from pathlib import Path
from typing import Annotated

import typer

from tophit.cli.shell import Verbose, app, console


@app.command(
    epilog="Examples: tophit serve mine.index · tophit serve mine.index --run runs/mine --against other.index · "
    "tophit serve mine.index --host 0.0.0.0 --token-file tokens --allow-host search.example.org"
)
def serve(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")],
    run: Annotated[
        Path | None, typer.Option("--run", help="The run that trained the model, to check it and to show its metrics.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--against", help="Another model's index of the same images, to compare with.")
    ] = None,
    images: Annotated[Path | None, typer.Option("--images", help="Serve pictures from this folder only.")] = None,
    host: Annotated[str, typer.Option("--host", help="Where to listen; other than loopback needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 means any free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Lines of 'read TOKEN' or 'admin TOKEN'; admins may write.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A host name of the server (repeatable).")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="A file with a certificate chain (PEM): serve by https.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="The file with the certificate's private key (PEM).")] = (
        None
    ),
    audit_log: Annotated[
        Path | None, typer.Option("--audit-log", help="Where changes are noted; else INDEX/serve/audit.jsonl.")
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Processes; one writes, the others follow within seconds.")
    ] = 1,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", help="Change a limit: --limit k=100 (repeatable). The docs list them under HTTP API."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Serve an index over HTTP, with a page to search it in a browser."""
    from tophit.files import check_there
    from tophit.search.versions import read_versions

    if images is not None:
        check_there(images, "--images")
    for index in (folder, against):
        if index is not None:
            read_versions(index)  # before torch, whose import takes long
    from tophit.serve import start_server
    from tophit.serve.config import Limits, ServeConfig
    from tophit.serve.security import make_access

    access = make_access(host, token_file, allow_host or ())
    limits = Limits.parse(limit or [])
    config = ServeConfig(
        folder,
        against,
        run,
        images and images.absolute(),
        access.has_admin,
        audit_log,
        certificate,
        key,
        workers,
        None,
        limits,
    )
    start_server(config, access, host, port, console)
