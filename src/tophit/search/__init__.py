"""Search: an index of vectors with ids and metadata on disk."""

from tophit.search.index import Hit, Index

__all__ = ["Hit", "Index"]
