"""The commands demo, train and runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.padding import Padding

from tophit.cli.shell import Verbose, app, console, is_alone
from tophit.errors import UsageError
from tophit.tables import metric_list, metrics_table, named_sets_table, paper_table

if TYPE_CHECKING:
    from tophit.training import TrainingResult


def _recipes_beginning(typed: str) -> list[str]:
    """Return the built-in recipes that a shell may complete a word to."""
    from tophit.recipe import recipe_names

    return [name for name in recipe_names() if name.startswith(typed)]


@app.command(epilog="Example: tophit demo")
def demo(
    folder: Annotated[Path, typer.Option("--out", help="The folder for the run, the index and the pictures.")] = Path(
        "runs/demo"
    ),
    serve: Annotated[bool, typer.Option(help="Finish by serving the search page.")] = True,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0 picks a free one.")] = 8000,
    verbose: Verbose = False,
) -> None:
    """Go from icon fonts to a search: build a set, train, evaluate on unseen classes, index, search, serve."""
    from tophit.demo import run_demo, serve_demo
    from tophit.progress import TerminalView
    from tophit.recipe import read_recipe

    recipe, view = read_recipe("icons"), TerminalView(console)
    run_demo(recipe, folder, console, view)
    if serve:
        serve_demo(recipe, folder, console, view, port)


@app.command(
    epilog="Examples: tophit train head --data images/ --run runs/mine · tophit train my.yaml --set loss.alpha=16 · "
    "tophit train --resume runs/mine"
)
def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe file, or the name of a built-in recipe.", autocompletion=_recipes_beginning),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="The training data; for a paper's recipe, the set's folder.")
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="The folder of the new run.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a field: --set loss.alpha=2 (repeatable).")
    ] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Continue the run in this folder.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print every field, with the recipe's values or the defaults, and exit.")
    ] = False,
    list_recipes: Annotated[bool, typer.Option("--list", help="List the built-in recipes and exit.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train an embedder from a recipe; Ctrl-C stops after the current step, --resume continues exactly."""
    if explain or list_recipes:
        _print_recipe_fields(recipe, overrides or [], data) if explain else _print_recipes()
        return
    if resume is not None and (recipe or data or overrides or run):
        raise UsageError("--resume continues a run with its own recipe; don't give a recipe, --data, --set or --run.")
    if resume is None and run is None:
        raise UsageError("Name the folder of the new run: --run runs/NAME.")
    from tophit import api
    from tophit.files import check_folder
    from tophit.progress import TerminalView
    from tophit.recipe import read_recipe
    from tophit.recipe.reading import overridden

    view, said = TerminalView(console), overrides or []
    if resume is not None:
        from tophit.training import Run

        if Run.open(resume).result() is not None:
            view.note(f"The run in {resume} is finished; here are its results.")
        result = api.resume(resume, progress=view)
    else:
        assert run is not None
        chosen = read_recipe(recipe, said, data)
        check_folder(run, "--run")
        result = api.begin_run(chosen, run, overridden(said), view, describe=is_alone())
    _print_result(result)


@app.command(epilog="Example: tophit runs experiments/")
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds runs, at any depth.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Verbose = False,
) -> None:
    """List runs with their progress and best metrics."""
    import json

    from tophit.reporting.runs import list_runs, runs_table

    found = list_runs(folder)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        table = runs_table(found, folder, console.width)
        console.print(table if found else f"There are no runs in {folder}.", highlight=False)


def _print_recipes() -> None:
    from tophit.recipe import recipe_groups

    for title, recipes in recipe_groups():
        console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
        width = max(len(name) for name, _ in recipes)
        for name, about in recipes:
            console.print(f"  {name:{width}}  {about}".rstrip(), highlight=False, markup=False, soft_wrap=True)
        console.print()
    console.print("Every field of one, with its value: tophit train NAME --explain", highlight=False)


def _print_recipe_fields(name: str | None, overrides: list[str], data: str | None) -> None:
    from tophit.recipe import read_recipe, recipe_fields, recipe_names

    recipe = None
    if name is None and not overrides:
        names = ", ".join([*recipe_names(), "variants of these, and rows of tables such as profs/triplet-hncm"])
        said = f"A recipe is YAML; these are its fields and defaults. Built-in recipes: {names} (tophit train --list)."
    else:
        recipe, note = read_recipe(name, overrides, data, to_explain=True), None
        if overrides:
            from tophit.recipe.reading import overridden
            from tophit.training.suited_batches import suit_batches

            recipe, note = suit_batches(recipe, overridden(overrides))
        said = f"The values of {name or 'the command line'}, and the fields of what it does not use. {note or ''}"
    console.print(f"{said}\n", highlight=False, markup=False)
    for path, kind, default, description in recipe_fields(recipe):
        console.print(f"[bold]{path}[/] = {escape(default)}  [dim]({escape(kind)})[/]", highlight=False)
        console.print(Padding(escape(description), (0, 0, 0, 4)), highlight=False)


def _print_result(result: "TrainingResult") -> None:
    console.print(result.headline(), highlight=False)
    for sentence in result.sentences():
        console.print(sentence, highlight=False, soft_wrap=True)
    if "centres" in result:
        from tophit.training.proxies import describe_centres

        console.print(describe_centres(result["centres"]), highlight=False)
    if result["test"]:
        console.print("On the test classes (%, 95% interval over classes):")
        if "optimistic" in result:
            console.print(f"Optimistic: {result['optimistic']}.", highlight=False)
        console.print(metric_list(result["test"], result["intervals"]))
    if result.get("test_sets"):
        console.print(named_sets_table(result["test_sets"], result.get("protocol", "drawn-galleries")))
    if "paper" in result:
        console.print(paper_table(result["paper"]))
    if "paper_left_out" in result:
        console.print(f"The paper's numbers are left out: {result['paper_left_out']}.", highlight=False)
    if result.get("before"):
        console.print(metrics_table(result.models()))
