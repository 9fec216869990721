"""Search: an index of vectors with ids and metadata on disk."""

from tophit.search.engine import Hit
from tophit.search.index import Index

__all__ = ["Hit", "Index"]
