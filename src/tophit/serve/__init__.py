"""Serving an index over HTTP, with a page to search it in a browser."""

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from tophit.serve.config import ServeConfig
    from tophit.serve.security import Access


def start_server(config: "ServeConfig", access: "Access", host: str, port: int, console: Console) -> None:
    """Serve until stopped, and print the address at the start; if packages are missing, say how to install them."""
    from tophit.models.named import check_model
    from tophit.serve.listening import check_tls
    from tophit.serve.problems import missing_package

    check_tls(config)
    if config.run is not None:
        check_model(config.run)
    try:
        if config.workers > 1:
            from tophit.serve.processes import serve_by_several as serve
        else:
            from tophit.serve.server import serve
    except ImportError as error:
        raise missing_package(error) from error

    def started(address: str) -> None:
        words = f"Serving {config.folder} at {address}  Press Ctrl-C to stop."
        console.print(words, highlight=False, soft_wrap=True)

    serve(config, access, host, port, started)
