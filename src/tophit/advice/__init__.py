"""Advice before the wait: what the data are, how long each choice would take here, and what to choose."""

from tophit.advice.planning import Advice, Option, describe_run, plan

__all__ = ["Advice", "Option", "describe_run", "plan"]
