"""The commands calibrate and name."""

from pathlib import Path
from typing import Annotated

import typer

from tophit.cli.search import WhereOption, hits_table
from tophit.cli.shell import Verbose, app, console, errors


@app.command(
    epilog="Examples: tophit calibrate runs/mine · tophit calibrate mine.index · "
    "tophit calibrate mine.index --data labelled/ --unknown 0.5"
)
def calibrate(
    model: Annotated[str, typer.Argument(metavar="RUN_OR_INDEX", help="A run, an embedder's folder, or an index.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Labelled images, of which learned classes are left out; default: the run's own, or the index's.",
        ),
    ] = None,
    unknown: Annotated[
        float, typer.Option("--unknown", help="Share of queries to expect whose class is not in the gallery.")
    ] = 0.2,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the galleries that are drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
    verbose: Verbose = False,
) -> None:
    """Learn the chance that a result is right, for --min-chance, --precision and name."""
    import json

    from tophit import api
    from tophit.files import without_nan
    from tophit.progress import TerminalView

    made = api.calibrate(model, data, unknown=unknown, seed=seed, progress=TerminalView(errors))
    if as_json:
        plain = {"learned_from": made.learned_from, **made.calibration.to_json()}
        print(json.dumps(without_nan(plain), indent=2, ensure_ascii=False))
        return
    for sentence in made.sentences():
        console.print(sentence, highlight=False, markup=False)


@app.command(epilog="Examples: tophit name mine.index photo.jpg · tophit name mine.index *.jpg --cut-off 0.8 --json")
def name(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="The images to name.")],
    cut_off: Annotated[float, typer.Option("--cut-off", help="Below this chance the answer is unknown.")] = 0.5,
    where: WhereOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    verbose: Verbose = False,
) -> None:
    """Name what images show by the labels of the nearest items: label, chance, evidence; or unknown."""
    import json

    from tophit import api
    from tophit.search.filters import parse_typed_filter
    from tophit.search.naming import check_cut_off
    from tophit.search.result_rows import results_as_json

    check_cut_off(cut_off, "--cut-off")
    found = api.name(folder, images, cut_off=cut_off, where=dict(parse_typed_filter(where or [])))
    if as_json:
        evidence = results_as_json([str(image) for image in images], [one.evidence for one in found])
        answers = [
            {"query": shown["query"], **one.plain(), "evidence": shown["results"]}
            for one, shown in zip(found, evidence, strict=True)
        ]
        print(json.dumps(answers, indent=2, ensure_ascii=False))
        return
    for image, one in zip(images, found, strict=True):
        console.print(f"{image}: {one.sentence()}", highlight=False, markup=False, soft_wrap=True)
        console.print(hits_table("evidence", one.evidence))
