"""Embedding: from rows of a manifest to vectors, with a cache of features and parts on disk."""
