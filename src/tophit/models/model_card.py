"""The model card of an embedder: what it is, how to use it, and, if a run made it, data, metrics and recipe."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

_TRAINED = {
    "nothing": "Nothing was trained: it is the backbone as published.",
    "head": "A head was trained on the features of the frozen backbone.",
    "last": "The head and the backbone's last stages were trained.",
    "all": "The whole network was trained.",
}


def model_card(embedder: "Embedder", name: str) -> str:
    """Return the card as Markdown, with the front matter that the hub reads."""
    result, recipe = _of_run(embedder.folder)
    parts = [_front_matter(name, result), _about(embedder, name)]
    if recipe is not None:
        parts += [_data(recipe), *([_metrics(result)] if result is not None and result.get("test") else [])]
        parts.append(f"## Recipe\n\n```yaml\n{yaml.safe_dump(recipe, sort_keys=False)}```")
    return "\n\n".join(parts) + "\n"


def _of_run(folder: Path | None) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the result and the recipe of the run that an embedder's folder belongs to; None where there is none.

    The path of the data says more about the author's machine than about the model, so only its last part stays.
    """
    if folder is None:
        return None, None
    result_path, recipe_path = folder.parent / "result.json", folder.parent / "recipe.yaml"
    if not recipe_path.is_file():
        return None, None
    recipe = yaml.safe_load(recipe_path.read_text(encoding="utf-8"))
    recipe["data"]["manifest"] = Path(recipe["data"]["manifest"]).name
    result = json.loads(result_path.read_text(encoding="utf-8")) if result_path.is_file() else None
    return result, recipe


def _front_matter(name: str, result: Mapping[str, Any] | None) -> str:
    fields: dict[str, Any] = {
        "library_name": "tophit",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["image-retrieval", "metric-learning"],
    }
    if result is not None and result.get("test"):
        measured = [{"type": key, "value": round(value, 4)} for key, value in result["test"].items()]
        task = {"type": "image-retrieval"}
        data = {"name": "test classes of the run", "type": "held-out"}
        found = {"task": task, "dataset": data, "metrics": measured}
        fields["model-index"] = [{"name": name.rpartition("/")[2], "results": [found]}]
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---"


def _about(embedder: "Embedder", name: str) -> str:
    size = embedder.preprocessing.size
    return (
        f"# {name.rpartition('/')[2]}\n\n"
        f"Images to unit vectors of {embedder.dim} numbers: similar images are close. Backbone "
        f"{embedder.architecture['backbone']}, {size} x {size} pixels. {_TRAINED[embedder.trained]}\n\n"
        f'```python\nimport tophit\n\nembedder = tophit.load("hf:{name}")\n'
        'vectors = embedder.encode(["a.jpg", "b.jpg"])\nprint(vectors @ vectors.T)  # cosine similarities\n```'
    )


def _data(recipe: Mapping[str, Any]) -> str:
    data = recipe["data"]
    shares = f"{data['validation_share']:.0%} of the training classes were held out to choose what is kept."
    return f"## Data\n\nTrained on `{data['manifest']}`. {shares} Loss: {recipe['loss']['name']}."


def _metrics(result: Mapping[str, Any]) -> str:
    """Return the metrics on the test classes as a table: with 95% intervals, and the backbone before training."""
    before = result.get("before") or {}
    lines = ["| metric | % | 95% interval | before training |", "| --- | --- | --- | --- |"]
    for name, value in result["test"].items():
        low, high = result.get("intervals", {}).get(name, (None, None))
        interval = "" if low is None else f"{100 * low:.1f} to {100 * high:.1f}"
        then = f"{100 * before[name]:.1f}" if name in before else ""
        lines.append(f"| {name} | {100 * value:.1f} | {interval} | {then} |")
    said = "On classes that were not trained on; intervals by bootstrap over classes."
    return f"## Results\n\n{said}\n\n" + "\n".join(lines)
