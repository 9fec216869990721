"""The command evaluate."""

from pathlib import Path
from typing import Annotated

import typer

from tophit.cli.shell import Verbose, app, console, errors
from tophit.report.tables import comparison_list, metric_list, named_sets_table, spread_sentence
from tophit.wording import counted


@app.command(
    epilog="Examples: tophit evaluate runs/mine · tophit evaluate runs/mine --data other-images/ · "
    "tophit evaluate runs/new --against runs/old · tophit evaluate runs/mine --rerank k-reciprocal"
)
def evaluate(
    model: Annotated[str, typer.Argument(help="A run, an embedder's folder, or a backbone's name.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="A manifest, a folder of class folders, 'icons', or a set: cub200:FOLDER; default: the run's own. "
            "Classes that the run learned are left out; of other data, all are tested.",
        ),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Which rows: train, validation, test, or all.")] = "test",
    against: Annotated[
        str | None, typer.Option("--against", help="Another model: show the paired difference on the same queries.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", help="A further metric: recall@100, or your own, package.module:function (repeatable)."
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            "--rerank",
            help="alpha-qe or k-reciprocal, with settings as in k-reciprocal:k1=10; compared with no re-ranking.",
        ),
    ] = None,
    clusters: Annotated[bool, typer.Option("--clusters", help="Also measure NMI and F1 of k-means clusters.")] = False,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            help="How test sets that the data name are searched: drawn-galleries, or all (each image searches all "
            "others); default: the run's.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for evaluation.json and per_query.parquet; default: MODEL/evaluation, for other data a folder "
            "in it.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Verbose = False,
) -> None:
    """Measure how well a model finds images of the same label, with 95% intervals over classes."""
    import json
    from dataclasses import asdict

    from tophit.data.folders import part_of
    from tophit.files import check_folder
    from tophit.training.run import advantage_of, recipe_of_run
    from tophit.training.run_data import data_to_test, evaluation_folder

    folder = out or evaluation_folder(model, data, split)
    if folder is not None:
        check_folder(folder, "--out")
    part = part_of(data_to_test(model, data), split)
    from tophit.models import load
    from tophit.progress import TerminalView
    from tophit.reranking import parse_reranking
    from tophit.training.full_evaluation import as_json as to_json
    from tophit.training.full_evaluation import evaluate_fully, measured_for, write_evaluation

    wanted = measured_for(recipe_of_run(model), metric or (), clusters, protocol)

    other = None if against is None else load(against)
    step = None if rerank is None else parse_reranking(rerank)
    view = TerminalView(errors)
    if against is not None and (warning := advantage_of(against, part.rows)):
        view.note(f"Warning: {warning}")
    found = evaluate_fully(load(model), part, other, **asdict(wanted), rerank=step, view=view)
    if folder is not None:
        write_evaluation(found, folder)
        errors.print(f"Written: {folder / 'evaluation.json'} and per_query.parquet", highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(to_json(found), indent=2, ensure_ascii=False))
        return
    classes = len({row.label for row in found.queries})
    console.print(f"{counted(len(found.queries), 'query')} of {counted(classes, 'class')}:", highlight=False)
    console.print(metric_list({**found.metrics, **found.clustering}, found.metrics.intervals))
    if found.other is not None:
        console.print(comparison_list(found.metrics, found.other, found.differences))
    if found.test_sets:
        console.print(named_sets_table(found.test_sets, found.protocol))
    console.print(spread_sentence(found.spread), highlight=False)
