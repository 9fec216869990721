"""Serving an index over HTTP, with a page to search it in a browser."""

from typing import TYPE_CHECKING

from rich.console import Console

from tophit.errors import TophitError

if TYPE_CHECKING:
    from tophit.serve.config import ServeConfig
    from tophit.serve.security import Access


def start_server(config: "ServeConfig", access: "Access", host: str, port: int, console: Console) -> None:
    """Serve until stopped, and print the address at the start; if packages are missing, say how to install them."""
    try:
        from tophit.serve.server import serve
    except ImportError as error:
        raise TophitError(
            f"Serving needs packages that are not installed ({error.name}): pip install 'tophit[serve]'"
        ) from error

    def started(address: str) -> None:
        words = f"Serving {config.folder} at {address}  Press Ctrl-C to stop."
        console.print(words, highlight=False, soft_wrap=True)

    serve(config, access, host, port, started)
