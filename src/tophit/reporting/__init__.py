"""Reports: what a model does, in tables and pictures."""
