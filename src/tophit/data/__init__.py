"""Data: manifests, folders, splits, benchmark sets, and the reading of rows."""
