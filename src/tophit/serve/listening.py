"""What a server needs of the system before it starts: a port, open files, a certificate that fits its key."""

import resource
import socket
import ssl

from tophit.errors import TophitError, UsageError
from tophit.serve.config import ServeConfig

_OTHER_FILES = 256
"""Open files that are no connections: the index, the decoders."""


def prepare(config: ServeConfig, host: str, port: int) -> tuple[socket.socket, str]:
    """Return the socket of a server and its address as shown to people. Port 0 means any free one.

    Of several processes each makes a socket of its own there; this one keeps the port for them.
    """
    _allow_open_files(config.limits.connections + _OTHER_FILES)
    listener = _listen(host, port)  # not in the way of another server, not even one of the same user
    if config.workers > 1:
        port = listener.getsockname()[1]
        listener.close()
        listener = one_of_several((host, port))
    shown = f"[{host}]" if ":" in host else host
    return listener, f"{'https' if config.certificate else 'http'}://{shown}:{listener.getsockname()[1]}/"


def _allow_open_files(count: int) -> None:
    """Raise the number of files that this process may open, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise UsageError(
            f"This needs {count} open files, the system allows {hard} (ulimit -n): lower it with "
            f"--limit connections={max(1, hard - _OTHER_FILES)}."
        )
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def check_tls(config: ServeConfig) -> None:
    """Raise if there is a certificate without a key, or one of them can't be used."""
    if (config.certificate is None) != (config.key is None):
        raise UsageError("TLS needs both --certificate and --key.")
    if config.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.certificate, config.key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--certificate {config.certificate} and --key {config.key} can't be used: {error}.") from None


def one_of_several(address: tuple[str, int]) -> socket.socket:
    """Return a socket of one process at an address that others have too: the system shares connections out evenly."""
    return _bound(*address, socket.SO_REUSEADDR, socket.SO_REUSEPORT)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return _bound(host, port, socket.SO_REUSEADDR)
    except OSError as error:
        raise TophitError(f"Can't listen on {host}:{port}: {error.strerror}. Choose another --port.") from None


def _bound(host: str, port: int, *options: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    for option in options:
        made.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made
