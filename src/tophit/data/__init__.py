"""Data: manifests, folders, the demo set, decoding, preprocessing, cached features."""
