"""Starting a server from a terminal: without its packages, say how to get them; with them, print the address."""

import socket

from rich.console import Console

from tophit.errors import TophitError
from tophit.serve.library import Wish
from tophit.serve.security import Access


def serve_wish(wish: Wish, access: Access, host: str, port: int, console: Console) -> None:
    """Serve until told to stop, and print the address at the start."""
    try:
        from tophit.serve.run import serve
    except ImportError as error:
        raise TophitError(
            f"Serving needs packages that are not installed ({error.name}): pip install 'tophit[serve]'"
        ) from error
    words = "Ctrl-C stops it."
    serve(
        wish,
        access,
        host,
        port,
        lambda address: console.print(f"Serving {wish.folder} at {address}  {words}", highlight=False, soft_wrap=True),
    )


def free_port(port: int, host: str = "127.0.0.1") -> int:
    """Return the port if nobody listens there, else 0, which means any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return 0
    return port
