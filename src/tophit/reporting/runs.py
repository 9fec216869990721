"""The runs in a folder: what each is, how far it is, and its best metrics."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from tophit.errors import UsageError
from tophit.files import read_json_lines
from tophit.recipe.yaml_text import parse_yaml
from tophit.training.result import gain_sentence

_WIDE = 110  # columns of a terminal that shows everything


def list_runs(folder: str | Path) -> list[dict[str, Any]]:
    """Describe each run below a folder, sorted by path; a run is a folder with recipe.yaml and metrics.jsonl."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.")
    paths = sorted(path.parent for path in folder.rglob("recipe.yaml") if (path.parent / "metrics.jsonl").is_file())
    return [_describe(path) for path in paths]


def _describe(run: Path) -> dict[str, Any]:
    recipe = parse_yaml((run / "recipe.yaml").read_text(encoding="utf-8"))
    lines = read_json_lines(run / "metrics.jsonl")
    name = recipe["evaluation"]["metric"]
    part = recipe["evaluation"].get("select_on", "validation")
    values = [line[f"{part}/{name}"] for line in lines if f"{part}/{name}" in line]
    steps = [line for line in lines if "loss" in line]
    answer: dict[str, Any] = {
        "run": str(run),
        "state": "stopped",
        "data": recipe["data"]["manifest"],
        "loss_name": recipe["loss"]["name"],
        "method": recipe.get("method", {}).get("name", "plain"),
        "epoch": steps[-1]["epoch"] if steps else 0,
        "epochs": recipe["schedule"]["epochs"],
        "step": steps[-1]["step"] if steps else 0,
        "metric": name,
        "best": max(values, default=None),
        "best_on": part,
        "test": {},
    }
    if (run / "result.json").is_file():
        result = json.loads((run / "result.json").read_text(encoding="utf-8"))
        answer |= {"state": "finished", "test": result["test"], "optimistic": "optimistic" in result}
        if "kept" in result:
            answer |= {"kept": result["kept"]["kept"], "validation": result["kept"]["values"][result["kept"]["kept"]]}
        if result.get("gain"):
            answer |= {"gain": result["gain"], "gained": gain_sentence(result)}
    return answer


def _gain(run: dict[str, Any], with_interval: bool) -> str:
    if "gain" not in run:
        return ""
    mean, low, high = (100 * run["gain"]["recall@1"][name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f}" + (f" ({low:+.1f} to {high:+.1f})" if with_interval else "")


def runs_table(runs: Sequence[dict[str, Any]], folder: str | Path, width: int = _WIDE) -> Table:
    """Return the runs of a folder as a table; * marks results whose epoch was chosen on the test classes.

    A narrow one leaves out the data, the state, what was kept, and the interval of the gain.
    """
    wide = width >= _WIDE
    heads = {name: Column(name, no_wrap=True, justify="right") for name in ("epoch", "recall@1", "MAP@R", "gain")}
    left = {"state": Column("state"), "data": Column("data", no_wrap=True), "kept": Column("kept")} if wide else {}
    columns = {"run": Column("run", overflow="fold"), **left, "loss": Column("loss"), **heads}
    columns["validation"] = Column("validation" if wide else "valid.", no_wrap=True)
    table = Table(*columns.values(), box=None)
    for run in runs:
        mark = "*" if run.get("optimistic") else ""
        test = {name: f"{100 * run['test'][name]:.1f}{mark}" if run["test"] else "" for name in ("recall@1", "MAP@R")}
        value = run.get("validation", run["best"])
        cells = {
            "run": escape(str(Path(run["run"]).relative_to(folder))),
            "state": run["state"],
            "data": escape(Path(run["data"]).name or run["data"]),
            "kept": run.get("kept", "trained" if run["state"] == "finished" else ""),
            "loss": run["loss_name"] + ("" if run["method"] == "plain" else f" ({run['method']})"),
            "epoch": f"{run['epoch']}/{run['epochs']}",
            "gain": _gain(run, wide),
            "validation": "" if value is None else f"{run['metric']} {100 * value:.1f}",
            **test,
        }
        table.add_row(*(cells[name] for name in columns))
    table.caption = (
        "recall@1, MAP@R: on test classes (*: their epoch was chosen on them, so too optimistic); gain: of recall@1 "
        f"over the untrained backbone{', with its 95% interval' if wide else ''}; "
        f"{'validation' if wide else 'valid.'}: what was kept, on validation classes"
        f"{'' if wide else '. In a wider terminal, or with --json: data, state, kept, intervals'}"
    )
    table.caption_justify = "left"
    return table
