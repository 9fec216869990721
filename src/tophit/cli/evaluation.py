"""The command evaluate."""

from pathlib import Path
from typing import Annotated

import typer

from tophit.cli.shell import Verbose, app, console, errors


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
            "--metric",
            help="A further metric: recall@100, level1-mAP, or your own, package.module:function (repeatable).",
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
    dim: Annotated[
        list[int] | None,
        typer.Option("--dim", min=1, help="Also measure the first DIM numbers of each vector alone (repeatable)."),
    ] = None,
    judgements: Annotated[
        Path | None,
        typer.Option(
            "--judgements",
            help="A TREC qrels file, lines 'query 0 item grade': what is relevant instead of equal labels.",
        ),
    ] = None,
    jaccard: Annotated[
        float | None,
        typer.Option(
            "--jaccard", help="For several labels: the least share of common labels of a right result; default: any."
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

    from tophit import api
    from tophit.files import check_folder
    from tophit.progress import TerminalView
    from tophit.training.run_data import evaluation_folder

    folder = out or evaluation_folder(model, data, split)
    if folder is not None:
        check_folder(folder, "--out")
    found = api.evaluate(
        model,
        data,
        against=against,
        split=split,
        metrics=metric or (),
        rerank=rerank,
        clusters=clusters,
        protocol=protocol,
        dims=dim or (),
        judgements=judgements,
        jaccard=jaccard,
        out=folder,
        progress=TerminalView(errors),
    )
    if folder is not None:
        errors.print(f"Written: {folder / 'evaluation.json'} and per_query.parquet", highlight=False, soft_wrap=True)
    if as_json:
        from tophit.training.full_evaluation import as_json as to_json

        print(json.dumps(to_json(found), indent=2, ensure_ascii=False))
        return
    console.print(found.headline(), highlight=False)
    for table in found.tables():
        console.print(table)
    for sentence in found.sentences():
        console.print(sentence, highlight=False)
