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
            answer["kept"] = result["kept"]["kept"]
        if result.get("gain"):
            answer |= {"gain": result["gain"], "gained": gain_sentence(result)}
    return answer


def _gain(run: dict[str, Any]) -> str:
    if "gain" not in run:
        return ""
    mean, low, high = (100 * run["gain"]["recall@1"][name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def runs_table(runs: Sequence[dict[str, Any]], folder: str | Path) -> Table:
    """Return the runs of a folder as a table; * marks results whose epoch was chosen on the test classes."""
    heads = ("loss (method)", "epoch", "best", "kept", "recall@1", "MAP@R", "gain of recall@1")
    table = Table(Column("run", overflow="fold"), "state", Column("data", no_wrap=True), *heads, box=None)
    for run in runs:
        name = Path(run["run"]).relative_to(folder)
        method = "" if run["method"] == "plain" else f" ({run['method']})"
        mark = "*" if run.get("optimistic") else ""
        best = "" if run["best"] is None else f"{run['metric']} {100 * run['best']:.1f}"
        test = [f"{100 * run['test'][name]:.1f}{mark}" if run["test"] else "" for name in ("recall@1", "MAP@R")]
        epoch = f"{run['epoch']}/{run['epochs']}"
        kept = run.get("kept", "trained" if run["state"] == "finished" else "")
        data = escape(Path(run["data"]).name or run["data"])
        cells = (run["state"], data, run["loss_name"] + method, epoch, best, kept, *test, _gain(run))
        table.add_row(escape(str(name)), *cells)
    table.caption = (
        "best: on validation classes; recall@1, MAP@R: on test classes; *: chosen on test classes, so too optimistic; "
        "gain: over the untrained backbone, with its 95% interval"
    )
    return table
