"""The command line. Each command is one library call; heavy imports wait until a command needs them."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table

from tophit import __version__, interrupts
from tophit.errors import Interrupted, TophitError, UsageError
from tophit.report.tables import comparison_list, metric_list, metrics_table

app = typer.Typer(
    help="Train image embeddings whose first page of results is right, prove it, and search with them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Build and check manifests: tables of images with labels.", no_args_is_help=True)
app.add_typer(data_app, name="data")

_STOPPED = "Stopped. Type the same command again to continue: what was finished is kept."
_IS_FIRST = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun started; only it prints results
console = Console(quiet=not _IS_FIRST)
errors = Console(stderr=True)


def main() -> None:
    """Run the command line: 0 for success, 2 for wrong use, 1 for a failure, each with one clear sentence."""
    interrupts.watch()
    try:
        app()
    except Interrupted as stop:
        errors.print(escape(str(stop)), highlight=False, soft_wrap=True)
        raise SystemExit(stop.exit_code) from None
    except (TophitError, OSError) as error:
        _fail(error, getattr(error, "exit_code", 1))
    except SystemExit as end:
        if end.code == Interrupted.exit_code:
            errors.print(_STOPPED)
        raise
    except Exception as error:
        if not interrupts.asked():  # else it is what a half-imported module led to
            _fail(TophitError(f"{type(error).__name__}: {error}. This is unexpected; --verbose shows where."), 1)
        errors.print(_STOPPED)
        raise SystemExit(Interrupted.exit_code) from None


def _fail(error: BaseException, code: int) -> None:
    if "--verbose" in sys.argv:
        errors.print_exception()
    errors.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    raise SystemExit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"tophit {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the traceback of an error.")] = False,
) -> None:
    """Hold the options that stand before a command."""


Verbose = Annotated[bool, typer.Option("--verbose", help="Show the traceback of an error.")]
RunOption = Annotated[str, typer.Option("--run", help="A run, an embedder's folder, or a backbone's name.")]


@app.command(epilog="Example: tophit demo")
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the run, the index and the pictures go.")] = Path(
        "runs/demo"
    ),
    verbose: Verbose = False,
) -> None:
    """From icon fonts to a search: build a set, train, evaluate on unseen classes, index, search."""
    from tophit.demo import run_demo
    from tophit.progress import TerminalView
    from tophit.recipe import read_recipe

    run_demo(read_recipe("icons"), folder, console, TerminalView(console))


@app.command(
    epilog="Examples: tophit train head --data images/ --run runs/mine · tophit train my.yaml --set loss.alpha=16 · "
    "tophit train --resume runs/mine"
)
def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe file, or the name of one that ships.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="What to learn from: sets data.manifest.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="The folder of the new run.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a field: --set loss.alpha=2 (repeatable).")
    ] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Continue the run in this folder.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print every field of a recipe and stop.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train an embedder by a recipe; Ctrl-C stops after the step, --resume continues exactly."""
    if explain:
        _print_recipe_fields()
        return
    if resume is not None and (recipe or data or overrides or run):
        raise UsageError("--resume continues a run with its own recipe; give it no recipe, --data, --set or --run.")
    if resume is None and run is None:
        raise UsageError("Name the folder of the new run: --run runs/NAME.")
    from tophit.recipe import read_recipe

    chosen = None if resume else read_recipe(recipe, overrides or [], data)
    from tophit import training
    from tophit.progress import TerminalView

    view = TerminalView(console)
    folder = resume or run
    assert folder is not None
    if chosen is None and training.Run(folder).result() is not None:
        view.note(f"The run in {folder} is finished; this is what it measured.")
    result = training.resume(folder, view) if chosen is None else training.train(chosen, folder, view)
    _print_result(folder, result)


@app.command(epilog="Example: tophit runs experiments/")
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds runs, at any depth.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Verbose = False,
) -> None:
    """List runs: how far each is, and its best metrics."""
    import json

    from tophit.report.runs import list_runs, runs_table

    found = list_runs(folder)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        console.print(runs_table(found, folder) if found else f"There are no runs in {folder}.", highlight=False)


@app.command(
    epilog="Examples: tophit evaluate runs/mine --data images/ · "
    "tophit evaluate runs/new --data images/ --against runs/old"
)
def evaluate(
    model: Annotated[str, typer.Argument(help="A run, an embedder's folder, or a backbone's name.")],
    data: Annotated[str, typer.Option("--data", help="A manifest, a folder of class folders, or the set 'icons'.")],
    split: Annotated[str, typer.Option("--split", help="Which rows: train, validation, test, or all.")] = "test",
    against: Annotated[
        str | None, typer.Option("--against", help="Another model: add the paired difference on the same queries.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="A further metric such as recall@100 (repeatable).")
    ] = None,
    clusters: Annotated[bool, typer.Option("--clusters", help="Also NMI and F1 of k-means clusters.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for evaluation.json and per_query.parquet; default: MODEL/evaluation."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Verbose = False,
) -> None:
    """Measure how well a model finds images of the same label, with 95% intervals over classes."""
    import json

    from tophit.data.folders import part_of
    from tophit.training.run import data_of_run

    part = part_of(data_of_run(model, data), split)
    from tophit.models import load
    from tophit.progress import TerminalView
    from tophit.training.full_evaluation import as_json as to_json
    from tophit.training.full_evaluation import evaluate_fully, write_evaluation

    other = None if against is None else load(against)
    found = evaluate_fully(load(model), part, other, metrics=metric or (), clusters=clusters, view=TerminalView(errors))
    folder = out or (Path(model) / "evaluation" if Path(model).is_dir() else None)
    if folder is not None:
        write_evaluation(found, folder)
        errors.print(f"Written: {folder / 'evaluation.json'} and per_query.parquet", highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(to_json(found), indent=2, ensure_ascii=False))
        return
    classes = len({row.label for row in found.queries})
    console.print(f"{len(found.queries)} queries of {classes} classes:", highlight=False)
    console.print(metric_list({**found.metrics, **found.clustering}, found.metrics.intervals))
    if found.other is not None:
        console.print(comparison_list(found.metrics, found.other, found.differences))
    spread = found.spread
    console.print(f"Cosine distance inside classes {spread['intra']:.3f}, between class means {spread['inter']:.3f}")


@app.command(epilog="Example: tophit index images/ --run runs/mine --out mine.index")
def index(
    images: Annotated[str, typer.Argument(help="A manifest, a folder of images, or the set 'icons'.")],
    run: RunOption,
    out: Annotated[Path, typer.Option("--out", help="The folder of the index.")],
    split: Annotated[str, typer.Option("--split", help="Which rows: train, validation, test, or all.")] = "all",
    verbose: Verbose = False,
) -> None:
    """Embed images and write an index that can be searched."""
    from tophit.data.folders import open_images, part_of

    part = part_of(open_images(images), split)
    from tophit.models import load
    from tophit.progress import TerminalView
    from tophit.search.catalogue import build_catalogue

    view = TerminalView(console)
    catalogue, bad = build_catalogue(load(run), part.rows, out, view.track("Embedding"))
    for row, reason in bad.items():
        view.note(f"Skipped row {part.number(row)}: {reason}")
    command = f"tophit search {shlex.quote(str(out))} IMAGE"
    console.print(
        f"{len(catalogue.index)} images are in {out}. Search it with: {command}", highlight=False, soft_wrap=True
    )


@app.command(epilog="Example: tophit search mine.index query.png --k 10 --sheet out.png")
def search(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")],
    queries: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="The images to search for.")],
    k: Annotated[int, typer.Option("--k", min=1, help="How many results.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    sheet: Annotated[Path | None, typer.Option("--sheet", help="Also draw the results into this PNG.")] = None,
    verbose: Verbose = False,
) -> None:
    """Find the indexed images nearest to an image: rank, score, label, path."""
    from tophit.search.catalogue import open_catalogue

    found = open_catalogue(folder).search(queries, k)
    if as_json:
        _print_hits_as_json(queries, found)
    else:
        for query, hits in zip(queries, found, strict=True):
            console.print(_hits_table(query, hits))
    if sheet is not None:
        _draw_hits(queries, found, sheet)


@data_app.command("icons", epilog="Example: tophit data icons")
def data_icons(verbose: Verbose = False) -> None:
    """Build the demo set of icons in the cache and say where it is."""
    from tophit.data.icons import icon_set

    manifest = icon_set()
    console.print(
        f"{len(manifest)} images of {len(set(manifest.labels))} icons: {manifest.source}",
        highlight=False,
        soft_wrap=True,
    )


@data_app.command("folder", epilog="Example: tophit data folder images/ --out images.csv --test-share 0.5")
def data_folder(
    folder: Annotated[Path, typer.Argument(help="A folder with one sub-folder a class.")],
    out: Annotated[Path, typer.Option("--out", help="The manifest to write: .csv or .parquet.")],
    test_share: Annotated[float, typer.Option(min=0, max=1, help="Share of the classes for testing.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Which classes those are.")] = 0,
    verbose: Verbose = False,
) -> None:
    """Write the manifest of a folder of class folders (or of its train/ and test/, or query/ and gallery/)."""
    from tophit.data.folders import manifest_from_folder
    from tophit.data.manifest import write_manifest

    manifest = manifest_from_folder(folder, test_share, seed)
    write_manifest(manifest, out)
    console.print(f"{len(manifest)} images of {len(set(manifest.labels))} classes: {out}", highlight=False)


@data_app.command("query-gallery", epilog="Example: tophit data query-gallery photos/ catalogue/ --out test.csv")
def data_query_gallery(
    query: Annotated[Path, typer.Argument(help="Class folders of images to search for.")],
    gallery: Annotated[Path, typer.Argument(help="Class folders of images to be found.")],
    out: Annotated[Path, typer.Option("--out", help="The manifest to write: .csv or .parquet.")],
    verbose: Verbose = False,
) -> None:
    """Write the test manifest of two folders: queries and gallery."""
    from tophit.data.folders import manifest_from_query_gallery
    from tophit.data.manifest import write_manifest

    manifest = manifest_from_query_gallery(query, gallery)
    write_manifest(manifest, out)
    console.print(f"{len(manifest)} images of {len(set(manifest.labels))} classes: {out}", highlight=False)


@data_app.command("check", epilog="Example: tophit data check images.csv --out problems.csv")
def data_check(
    data: Annotated[str, typer.Argument(help="A manifest, a folder of class folders, or the set 'icons'.")],
    out: Annotated[Path | None, typer.Option("--out", help="Also write the problems as CSV.")] = None,
    verbose: Verbose = False,
) -> None:
    """Open every image and report what is wrong; exit code 1 if an image can't be read."""
    from tophit.data.check import KINDS, check_manifest, write_problems
    from tophit.data.folders import open_data
    from tophit.progress import TerminalView

    manifest = open_data(data)
    problems = check_manifest(manifest, TerminalView(errors).track("Checking"))
    if out is not None:
        write_problems(problems, out)
    table = Table("problem", "row", "detail", title=f"{len(manifest)} images, {len(problems)} problems")
    for problem in problems[:200]:
        table.add_row(problem.kind, ", ".join(map(str, problem.rows[:6])), escape(problem.detail))
    if problems:
        console.print(table)
    counts = {kind: sum(problem.kind == kind for problem in problems) for kind in KINDS}
    console.print(f"{len(manifest)} images: " + ", ".join(f"{kind} {count}" for kind, count in counts.items()))
    if counts["unreadable"]:
        raise typer.Exit(1)


def _print_recipe_fields() -> None:
    from tophit.recipe import recipe_fields, recipe_names

    names = ", ".join([*recipe_names(), "and rows of tables such as profs/triplet-hncm"])
    console.print(f"A recipe is YAML; these are its fields. Recipes that ship: {names}.\n")
    for path, kind, default, description in recipe_fields():
        console.print(f"[bold]{path}[/] = {escape(default)}  [dim]({escape(kind)})[/]", highlight=False)
        console.print(Padding(escape(description), (0, 0, 0, 4)), highlight=False)


def _print_result(folder: Path, result: dict[str, Any]) -> None:
    console.print(
        f"{result['steps']} steps in {result['seconds']:.0f} s, best epoch {result['best_epoch']}: {folder / 'best'}",
        highlight=False,
    )
    if "centres" in result:
        from tophit.training.proxies import describe_centres

        console.print(describe_centres(result["centres"]), highlight=False)
    if result["test"]:
        console.print("On the test classes (%, 95% interval over classes):")
        if "optimistic" in result:
            console.print(f"Optimistic: {result['optimistic']}.", highlight=False)
        console.print(metric_list(result["test"], result["intervals"]))
    if result.get("before"):
        models = {
            "backbone before training": (result["before"], result["before_intervals"]),
            "trained": (result["test"], result["intervals"]),
        }
        console.print(metrics_table(models))


def _hits_table(query: Path, hits: Any) -> Table:
    table = Table("rank", "score", "label", Column("path", overflow="fold"), title=escape(str(query)))
    for hit in hits:
        path, label = hit.metadata.get("path", hit.id), hit.metadata.get("label", "")
        table.add_row(str(hit.rank), f"{hit.score:.4f}", escape(str(label)), escape(str(path)))
    return table


def _print_hits_as_json(queries: list[Path], found: Any) -> None:
    import json

    answer = [
        {
            "query": str(query),
            "results": [{"rank": h.rank, "score": h.score, "id": h.id, **h.metadata} for h in hits],
        }
        for query, hits in zip(queries, found, strict=True)
    ]
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def _draw_hits(queries: list[Path], found: Any, sheet: Path) -> None:
    from tophit.report.sheet import SheetCell, contact_sheet

    rows = [
        (
            SheetCell(query, query.name),
            [SheetCell(Path(hit.metadata["path"]), f"{hit.metadata['label']}\n{hit.score:.3f}") for hit in hits],
        )
        for query, hits in zip(queries, found, strict=True)
    ]
    contact_sheet(rows, sheet)
    errors.print(f"Drawn into {sheet}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
