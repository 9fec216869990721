"""The local engine: a folder with FAISS segments, a SQLite file and a manifest."""

from tophit.search.local.engine import LocalEngine

__all__ = ["LocalEngine"]
