"""Measurements: each module prints a table; run one with python -m benchmarks.NAME."""
