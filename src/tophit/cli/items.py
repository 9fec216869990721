"""The commands under items: manage an index."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from tophit.cli.search import BuildOption, MemoryOption, RecallOption, WhereOption
from tophit.cli.shell import RunOption, Verbose, app, console, errors
from tophit.errors import TophitError
from tophit.wording import counted, readable_bytes

items_app = typer.Typer(
    help="Manage an index: its facts, duplicates, deleting items, changing to a new model.", no_args_is_help=True
)
app.add_typer(items_app, name="items")

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")]


@items_app.command("info", epilog="Example: tophit items info mine.index --where label=cat")
def info(
    folder: Folder,
    where: WhereOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Verbose = False,
) -> None:
    """Show what an index holds, how it is searched, and its versions."""
    import json

    from tophit.search.catalogue import open_to_search
    from tophit.search.field_values import check_fields, why_nothing
    from tophit.search.filters import parse_typed_filter
    from tophit.search.versions import read_versions

    known = read_versions(folder)
    conditions = parse_typed_filter(where or [])
    with open_to_search(folder) as catalogue:
        facts: dict[str, Any] = catalogue.index.stats()
        if conditions:
            check_fields(catalogue.index, conditions)
            facts["matching"] = catalogue.index.count(conditions)
            if not facts["matching"]:
                errors.print(why_nothing(catalogue.index, conditions), highlight=False, markup=False, soft_wrap=True)
    facts |= {"version in force": known.current, "versions": ", ".join(known.versions)}
    if as_json:  # whose keys stay
        print(json.dumps(facts, indent=2, default=str))
        return
    facts["active version"] = facts.pop("version in force")
    table = Table("", Column("", overflow="fold"), show_header=False)
    for name, value in facts.items():
        table.add_row(escape(_WORDS.get(name, name)), escape(_readable(name, value)))
    console.print(table)


_GROUPS_SHOWN = 20
_WORDS = {
    "engine": "backend",
    "bytes": "on disk",
    "version": "changes so far",
    "recall_target": "recall@10 wanted",
    "kind_wanted": "kind wanted",
    "exact_below": "exact with fewer items than",
    "delta": "not compacted yet",
    "dead": "deleted, still stored",
}


def _readable(name: str, value: Any) -> str:
    """Return a fact of an index as a person reads it."""
    if name == "bytes":
        return f"{value / 1e6:,.1f} MB"
    if name == "budget":
        return f"{readable_bytes(value['memory'])} of memory, {value['build']:,.0f} s to build"
    if name == "measured":
        return "\n".join(map(_measured, value)) or "nothing: the kind was not chosen by measuring"
    if isinstance(value, list):  # segments: facts of each
        parts = (", ".join(f"{key} {each}" for key, each in one.items()) for one in value if isinstance(one, dict))
        return "\n".join(parts) or "none"
    return "none" if value in (None, "") else f"{value:,}" if isinstance(value, int) else str(value)


def _measured(one: dict[str, Any]) -> str:
    """Return what was measured of a kind of index when it was chosen, or why it was left out."""
    if "left out" in one:
        return f"{one['kind']}: left out, {one['left out']}"
    times = one["microseconds"]
    return (
        f"{one['kind']}: recall@10 {one['recall@10']:.3f}, {times['alone']:,.0f} microseconds a query alone, "
        f"{times['together']:,.0f} in a batch, {readable_bytes(one['memory'])} of memory, "
        f"{one['build seconds']:,.0f} s to build"
    )


@items_app.command("delete", epilog="Example: tophit items delete mine.index /photos/a.jpg /photos/b.jpg")
def delete(
    folder: Folder,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The items to remove: ids, paths, or the ends of ids.")
    ],
    verbose: Verbose = False,
) -> None:
    """Remove items, as search --id names them; if one is not found, none is removed."""
    from tophit.search.catalogue import open_to_search

    with open_to_search(folder, writable=True) as catalogue:
        found = catalogue.delete(ids)
    for text, name in found.items():
        if text != name:
            console.print(f"{text}: {name}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{counted(len(set(found.values())), 'item')} deleted.", highlight=False)


@items_app.command("duplicates", epilog="Example: tophit items duplicates mine.index --threshold 0.97 --out pairs.csv")
def duplicates(
    folder: Folder,
    threshold: Annotated[float, typer.Option(help="The least cosine similarity of near-duplicates.")] = 0.95,
    out: Annotated[Path | None, typer.Option("--out", help="Write every group to this CSV file.")] = None,
    verbose: Verbose = False,
) -> None:
    """Find groups of near-duplicates."""
    from tophit.files import check_file
    from tophit.progress import TerminalView
    from tophit.search.catalogue import open_to_search
    from tophit.search.duplicates import near_duplicates, write_duplicates

    if out is not None:
        check_file(out, "--out")
    with open_to_search(folder) as catalogue:
        groups = near_duplicates(catalogue.index, threshold, TerminalView(console).track("Comparing"))
    console.print(f"{sum(map(len, groups))} items in {len(groups)} groups of near-duplicates.", highlight=False)
    if out is not None:
        write_duplicates(groups, out)
        console.print(f"Written: {out}", highlight=False, soft_wrap=True)
        return
    table = Table("group", "score", Column("id", overflow="fold"))
    for one in (each for group in groups[:_GROUPS_SHOWN] for each in group):
        table.add_row(str(one.group), f"{one.score:.4f}", escape(one.id))
    if len(groups) > _GROUPS_SHOWN:
        table.caption = f"the first {_GROUPS_SHOWN} of {len(groups)} groups; --out FILE writes all"
    console.print(table)


@items_app.command("compact", epilog="Example: tophit items compact mine.index --memory 2GB --build 5min")
def compact(
    folder: Folder,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Another kind of index; tophit index --help lists them.")
    ] = None,
    recall: RecallOption = None,
    memory: MemoryOption = None,
    build: BuildOption = None,
    verbose: Verbose = False,
) -> None:
    """Merge what was written since the last compaction; choose the kind of index again and tune it."""
    from tophit.search.catalogue import open_to_search
    from tophit.search.local.describing import why_exact

    wanted = {"kind": kind, "recall": recall, "memory": memory, "build": build}
    options = {name: value for name, value in wanted.items() if value is not None}
    with open_to_search(folder, writable=True, **options) as catalogue:
        catalogue.index.compact()
        console.print(f"{len(catalogue.index)} items compacted.", highlight=False)
        if kind is not None and (reason := why_exact(catalogue.index.stats())):
            console.print(reason, highlight=False)


@items_app.command("verify", epilog="Example: tophit items verify mine.index")
def verify(folder: Folder, verbose: Verbose = False) -> None:
    """Read everything in an index's folder and report any damage; exit code 1 if there is some."""
    from tophit.search.maintenance import verify_catalogue

    wrong = verify_catalogue(folder)
    for sentence in wrong:
        console.print(escape(sentence), highlight=False, soft_wrap=True)
    if wrong:
        raise TophitError(f"The index in {folder} is damaged; try: tophit items repair {folder}")
    console.print("No problems found.")


@items_app.command("repair", epilog="Example: tophit items repair mine.index")
def repair(folder: Folder, verbose: Verbose = False) -> None:
    """Recover what can be recovered of a damaged local index, and report what was lost."""
    from tophit.search.maintenance import repair_catalogue

    for sentence in repair_catalogue(folder) or ["There was nothing to repair."]:
        console.print(escape(sentence), highlight=False, soft_wrap=True)


@items_app.command("backup", epilog="Example: tophit items backup mine.index /backups/mine.index")
def backup(
    folder: Folder,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="A new folder, or one with an earlier backup: then only news is copied."),
    ],
    verbose: Verbose = False,
) -> None:
    """Copy an index while others write to it; the copy is whole, of one moment, and verified."""
    from tophit.search.backup import back_up

    _show_copy(back_up(folder, out), out)


@items_app.command("restore", epilog="Example: tophit items restore /backups/mine.index mine.index")
def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="The folder of a backup.")],
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="A new folder for the index.")],
    verbose: Verbose = False,
) -> None:
    """Make an index from a backup, in a new folder, and verify it."""
    from tophit.search.backup import restore

    _show_copy(restore(backup, folder), folder)


def _show_copy(made: Any, folder: Path) -> None:
    copied = made.copied
    console.print(
        f"{copied.items:,} items in {counted(made.versions, 'version')} are in {escape(str(folder))}, verified: "
        f"{copied.written / 1e6:,.1f} MB copied, {copied.kept / 1e6:,.1f} MB were there.",
        highlight=False,
        soft_wrap=True,
    )


@items_app.command(
    "reembed",
    epilog="Examples: tophit items reembed mine.index --run runs/new · then tophit items switch mine.index v2",
)
def reembed(
    folder: Folder,
    run: RunOption,
    queries: Annotated[
        str | None, typer.Option("--queries", help="Compare on these images (a manifest) instead of a sample.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="How many results are compared.")] = 10,
    switch: Annotated[bool, typer.Option("--switch", help="Activate the new version at once.")] = False,
    verbose: Verbose = False,
) -> None:
    """Embed every item again with a new model, beside the old version, and compare the two."""
    from tophit.data.folders import open_images
    from tophit.models.named import check_model
    from tophit.search.versions import read_versions, switch_version

    check_model(run)
    read_versions(folder)
    rows = None if queries is None else open_images(queries).rows
    from tophit.models import load  # this and the next import torch, which takes long
    from tophit.progress import TerminalView
    from tophit.search.reembed import compare_versions, reembed

    view = TerminalView(console)
    made = reembed(folder, load(run), view.track("Embedding"))
    for name, reason in made.bad.items():
        view.note(f"Left out {name}: {reason}")
    found = compare_versions(folder, made.version, rows, k)
    view.note(
        f"{made.count} items are in version {made.version}. On {found.queries} queries the first {k} results of both "
        f"versions have {found.overlap:.1%} in common."
    )
    table = Table("share of queries or results of the query's label", "active", made.version)
    table.add_row("first result", *(f"{value:.1%}" for value in found.first_right))
    table.add_row(f"first {k} results", *(f"{value:.1%}" for value in found.same_label))
    console.print(table)
    if switch:
        switch_version(folder, made.version)
        view.note(f"Version {made.version} is active. To go back: tophit items rollback {folder}")
    else:
        view.note(f"To activate it: tophit items switch {folder} {made.version}")


@items_app.command("switch", epilog="Example: tophit items switch mine.index v2")
def switch(
    folder: Folder,
    version: Annotated[str, typer.Argument(help="The version to activate.")],
    verbose: Verbose = False,
) -> None:
    """Activate a version; the one before is kept."""
    from tophit.search.versions import switch_version

    switch_version(folder, version)
    console.print(f"Version {version} is active.", highlight=False)


@items_app.command("rollback", epilog="Example: tophit items rollback mine.index")
def rollback(folder: Folder, verbose: Verbose = False) -> None:
    """Go back to the version that was active before."""
    from tophit.search.versions import roll_back

    console.print(f"Version {roll_back(folder)} is active again.", highlight=False)
