"""Reports: what a model does, as tables and pictures."""
