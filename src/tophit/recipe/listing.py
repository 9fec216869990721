"""The built-in recipes, in groups and with a line about each, as ``tophit train --list`` prints them."""

from collections.abc import Iterator

from tophit.recipe.reading import read_recipe
from tophit.recipe.recipe_files import shipped_files, shipped_variants, table_rows
from tophit.recipe.sections import Recipe

Group = tuple[str, list[tuple[str, str]]]
_OWN = "For your own images, and the demo"


def recipe_groups() -> Iterator[Group]:
    """Yield a title, and the names and descriptions of the recipes under it: general ones, then a group per paper."""
    files, variants = shipped_files(), shipped_variants()
    groups: dict[str, list[str]] = {}
    for name in sorted([*files, *variants]):
        groups.setdefault(name.rpartition("/")[0], []).append(name)
    for group, names in groups.items():
        recipes = {name: read_recipe(name, to_explain=True) for name in names}
        title = f"{group}: {recipes[names[0]].paper.title}" if group else _OWN
        about = {name: _first_sentence(files[name].read_text(encoding="utf-8")) for name in names if name in files}
        yield title, [(name, _described(about.get(name, ""), recipe)) for name, recipe in recipes.items()]
    rows = table_rows()
    yield "On the demo's icons, as heads: rows of a paper's table", [(name, "") for name in rows]


def _described(about: str, recipe: Recipe) -> str:
    metrics = recipe.paper.metrics
    first = next((f"{value:g}" for key, value in metrics.items() if key.endswith(("recall@1", "precision@1"))), None)
    method = "" if recipe.method.name == "plain" else f", method {recipe.method.name}"
    parts = [about or recipe.paper.row, f"{recipe.embedder.backbone}, loss {recipe.loss.name}{method}"]
    parts += [f"the paper's recall@1: {first}"] if first else []
    return "; ".join(part.rstrip(".") for part in parts if part)


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment at the beginning of a recipe file."""
    comment = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).split(". ")[0]
