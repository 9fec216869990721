"""Attacks on a server of one's own; see ``python -m benchmarks.attack --help`` and docs/security.md."""
