"""The command plan."""

from typing import Annotated

import typer

from tophit.cli.shell import Verbose, app, console


@app.command(epilog="Example: tophit plan images/ --backbone resnet50")
def plan(
    data: Annotated[str, typer.Argument(help="What you would train on: a folder, a manifest, a feature file.")],
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="The network; default: efficientnet-lite0.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a field of the recipe head (repeatable).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Verbose = False,
) -> None:
    """Say what the data are, what each choice would take on this machine, and what to choose, before any training."""
    import json

    from tophit.data.folders import check_data

    check_data(data)  # before torch, whose import takes long
    from tophit import advice
    from tophit.advice.planning import options_table
    from tophit.progress import TerminalView, View

    found = advice.plan(data, backbone, overrides or [], View() if as_json else TerminalView(console))
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return
    for sentence in found.data.sentences():
        console.print(sentence, highlight=False, soft_wrap=True)
    console.print(options_table(found.options))
    console.print("Advice:")
    for reason in found.reasons:
        console.print(f"  {reason}", highlight=False, soft_wrap=True)
    console.print(f"  {found.command}", highlight=False, soft_wrap=True)
