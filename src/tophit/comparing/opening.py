"""Beginning a comparison, or opening one that was begun; wrong use is told before anything large is imported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tophit.comparing.plan import make_plan, preset_fields, read_plan
from tophit.comparing.store import Store
from tophit.data.folders import check_data, whole_path
from tophit.errors import UsageError
from tophit.recipe import merged


def open_comparison(
    plan: str | Path | Mapping[str, Any] | None,
    preset: str | None,
    data: str | None,
    out: Path | None,
    budget: dict[str, Any],
) -> Store:
    """Start a comparison from a plan or a preset in the folder ``out``, or open the one in the folder ``plan``.

    A plan is a YAML file or its content.
    ``data`` and ``budget`` (seeds, trials, epochs; None: unchanged) override the plan.
    """
    if (plan is None) == (preset is None):
        raise UsageError(
            "Name a plan, a comparison's folder, or a preset: tophit compare --preset quick --data images/."
        )
    changes: dict[str, Any] = {"budget": {name: value for name, value in budget.items() if value is not None}}
    if data is not None:
        changes["data"] = {"manifest": data}
    where = preset or ("the plan" if isinstance(plan, Mapping) else str(plan))
    if isinstance(plan, str | Path) and Path(plan).is_dir():
        store = Store(Path(plan))
        fields = store.plan().model_dump(mode="json")
    else:
        if out is None:
            raise UsageError("Name the comparison's folder: --out runs/NAME.")
        store = Store(out)
        fields = preset_fields(preset) if preset is not None else _fields_of(plan)
        if preset is not None and data is None:
            raise UsageError("A preset names no data: add --data PATH, or --data icons.")
    made = make_plan(merged(fields, changes), where)
    if not store.plan_path.is_file():
        check_data(made.data["manifest"])  # of one that was begun, finished runs can do without
    store.begin(made.model_copy(update={"data": {**made.data, "manifest": whole_path(made.data["manifest"])}}))
    return store


def _fields_of(plan: str | Path | Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(plan) if isinstance(plan, Mapping) else read_plan(str(plan)).model_dump(mode="json")
