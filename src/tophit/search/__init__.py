"""Search: an index of vectors with ids and metadata, on disk or in a database."""

from tophit.search.backend import Hit, Item
from tophit.search.index import Index

__all__ = ["Hit", "Index", "Item"]
