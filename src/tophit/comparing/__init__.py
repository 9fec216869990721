"""The fair comparison: candidates on the same data with the same budget, and whether their differences are real."""

from tophit.comparing.plan import Plan, make_plan, preset_fields, preset_names, read_plan
from tophit.comparing.store import Store

__all__ = ["Plan", "Store", "make_plan", "preset_fields", "preset_names", "read_plan"]
