"""The engines by name, imported when first used, and which one a location belongs to."""

import importlib
from pathlib import Path
from typing import Any

from tophit.errors import UsageError

ENGINES = {
    "local": "tophit.search.local:LocalEngine",
    "milvus": "tophit.search.milvus:MilvusEngine",
    "pgvector": "tophit.search.pgvector:PgvectorEngine",
}
_PREFIXES = {
    "milvus": ("http://", "https://", "tcp://"),
    "pgvector": ("postgres://", "postgresql://", "host=", "dbname="),
}


def engine_of(location: str | Path) -> str:
    """Name the engine of a location: an address is Milvus, so is a file ``*.db``; a DSN is pgvector; a folder local."""
    text = str(location)
    for name, prefixes in _PREFIXES.items():
        if text.startswith(prefixes):
            return name
    return "milvus" if text.endswith(".db") else "local"


def engine_class(name: str) -> Any:
    """Return the class of an engine; it has the class methods ``create`` and ``open``."""
    if name not in ENGINES:
        raise UsageError(f"There is no search engine '{name}'; choices: {', '.join(ENGINES)}.")
    module, attribute = ENGINES[name].split(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise UsageError(f"The search engine '{name}' needs a package that is not installed: {error.name}.") from error
