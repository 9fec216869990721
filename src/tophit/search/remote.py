"""What the backends behind an address share: names of collections, optional packages, the pinned description."""

import importlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tophit.errors import TophitError, UsageError

FORMAT = 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")


def import_package(name: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TophitError(
            f"The backend {extra} needs the package {name}, which can't be imported ({error}); "
            f"install it with: pip install 'tophit[{extra}]'"
        ) from error


@contextmanager
def closed_on_error(backend: Any) -> Iterator[None]:
    """Close a backend that could not be created or opened."""
    try:
        yield
    except BaseException:
        backend.close()
        raise


def check_name(name: str, what: str) -> str:
    """Return the name of a collection or table if every server accepts it."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"The name of a {what} has up to 60 letters, digits and _ and does not start with a digit: not {name!r}."
        )
    return name


def pinned(dim: int, fingerprint: str, **more: Any) -> str:
    """Return what is pinned to a new collection: the format, the length of its vectors, the embedder's fingerprint."""
    return json.dumps({"tophit": FORMAT, "dim": dim, "fingerprint": fingerprint, **more}, sort_keys=True)


def read_pinned(text: str | None, where: str) -> dict[str, Any]:
    """Return what :func:`pinned` wrote; refuse what Tophit did not create or can't read."""
    try:
        fields = json.loads(text or "")
        version = fields["tophit"]
    except (ValueError, TypeError, KeyError):
        raise TophitError(f"{where} was not made by Tophit; choose another name.") from None
    if version != FORMAT:
        raise TophitError(f"{where} has format {version}; this version of Tophit reads {FORMAT}.")
    return fields
