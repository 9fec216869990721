"""The commands index and search."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from tophit.cli.shell import Verbose, app, console, errors
from tophit.errors import UsageError

WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only items with: label=cat, label=cat,dog, price<10, sold!=true (repeatable)."),
]


@app.command(
    epilog="Examples: tophit index images/ --run runs/mine --out mine.index · "
    "tophit index --from vectors/ --run runs/mine --out mine.index · "
    "tophit index images/ --run runs/mine --out mine.index --engine milvus --uri http://localhost:19530"
)
def index(
    images: Annotated[str | None, typer.Argument(help="A manifest, a folder of images, or the set 'icons'.")] = None,
    run: Annotated[str, typer.Option("--run", help="A run, an embedder's folder, or a backbone's name.")] = ...,  # type: ignore[assignment]
    out: Annotated[Path, typer.Option("--out", help="The folder of the index; one that is there grows.")] = ...,  # type: ignore[assignment]
    vectors: Annotated[
        Path | None, typer.Option("--from", help="Instead of images: a folder that tophit embed wrote.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Which rows: train, validation, test, or all.")] = "all",
    recall: Annotated[
        float | None, typer.Option("--recall", min=0.5, max=1, help="The recall to tune a large local index for.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="local, milvus or pgvector.")] = "local",
    uri: Annotated[str, typer.Option("--uri", help="Milvus: an address, or a file ending in .db.")] = "",
    dsn: Annotated[str, typer.Option("--dsn", help="pgvector: postgresql://user@host/database.")] = "",
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", help="Kind of index. local: auto, flat, ivf, hnsw; milvus: flat, hnsw; pgvector: exact, hnsw."
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Start of the collection's or table's name.")] = "tophit",
    verbose: Verbose = False,
) -> None:
    """Embed images and write an index that can be searched, or add them to one."""
    if (images is None) == (vectors is None):
        raise UsageError("Give either images or --from a folder of vectors.")
    from tophit.data.folders import open_images, part_of

    part = None if images is None else part_of(open_images(images), split)
    from tophit.models import load
    from tophit.progress import TerminalView
    from tophit.search.catalogue import build_catalogue, load_catalogue
    from tophit.search.versions import EngineChoice

    view = TerminalView(console)
    choice = EngineChoice(engine, uri or dsn, name, kind, recall)
    if part is None:
        assert vectors is not None
        catalogue, written = load_catalogue(load(run), vectors, out, view.track("Loading"), choice=choice)
        view.note(f"{written} vectors written.")
    else:
        catalogue, bad = build_catalogue(load(run), part.rows, out, view.track("Embedding"), choice=choice)
        for row, reason in bad.items():
            view.note(f"Skipped row {part.number(row)}: {reason}")
    with catalogue:
        command = f"tophit search {shlex.quote(str(out))} IMAGE"
        console.print(
            f"{len(catalogue.index)} images are in {out}. Search it with: {command}", highlight=False, soft_wrap=True
        )
        stats = catalogue.index.stats()
        if stats.get("recall@10", 1) < 1:
            console.print(f"Kind of index: {stats['kind']}; recall@10 measured: {stats['recall@10']:.3f}")


@app.command(
    epilog="Examples: tophit search mine.index query.png --k 10 --sheet out.png · "
    "tophit search mine.index photo.jpg --box 40,20,300,280 --where label=cat --where 'price<10' · "
    "tophit search mine.index --like a.png --like b.png --unlike c.png · "
    "tophit search mine.index query.png --rerank k-reciprocal"
)
def search(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")],
    queries: Annotated[
        list[Path] | None, typer.Argument(metavar="[IMAGE]...", help="The images to search for.")
    ] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Search by an item of the index (repeatable).")] = None,
    box: Annotated[str | None, typer.Option("--box", help="Only this part of the image: x1,y1,x2,y2.")] = None,
    like: Annotated[
        list[str] | None, typer.Option("--like", help="More like this: an id or an image (repeatable).")
    ] = None,
    unlike: Annotated[
        list[str] | None, typer.Option("--unlike", help="Less like this: an id or an image (repeatable).")
    ] = None,
    together: Annotated[bool, typer.Option("--together", help="All images and ids as one query.")] = False,
    where: WhereOption = None,
    rerank: Annotated[
        list[str] | None,
        typer.Option("--rerank", help="alpha-qe or k-reciprocal, with settings as in alpha-qe:alpha=2 (repeatable)."),
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="How many results.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    sheet: Annotated[Path | None, typer.Option("--sheet", help="Also draw the results into this PNG.")] = None,
    verbose: Verbose = False,
) -> None:
    """Find the indexed images nearest to images, items or examples: rank, score, label, path."""
    from tophit.reranking import parse_reranking
    from tophit.search.ask import Question, ask
    from tophit.search.catalogue import open_catalogue
    from tophit.search.plain_values import parse_conditions

    question = Question(
        images=queries or (),
        ids=ids or (),
        box=None if box is None else _box(box),
        like=like or (),
        unlike=unlike or (),
        together=together,
        k=k,
        where=parse_conditions(where or []),
        rerank=[parse_reranking(text) for text in rerank or []],
    )
    with open_catalogue(folder) as catalogue:
        answers = ask(catalogue, question)
    if as_json:
        _print_as_json(answers)
    else:
        for answer in answers:
            console.print(hits_table(answer.query, answer.hits))
    if sheet is not None:
        _draw(answers, sheet)


def hits_table(title: str, hits: Any) -> Table:
    """Return a table of results: rank, score, label, path."""
    table = Table("rank", "score", "label", Column("path", overflow="fold"), title=escape(title))
    for hit in hits:
        path, label = hit.metadata.get("path", hit.id), hit.metadata.get("label", "")
        table.add_row(str(hit.rank), f"{hit.score:.4f}", escape(str(label)), escape(str(path)))
    return table


def _box(text: str) -> tuple[float, float, float, float]:
    try:
        x1, y1, x2, y2 = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--box takes four numbers x1,y1,x2,y2, not '{text}'.") from None
    return x1, y1, x2, y2


def _print_as_json(answers: Any) -> None:
    import json

    found = [
        {
            "query": answer.query,
            "results": [{"rank": h.rank, "score": h.score, "id": h.id, **h.metadata} for h in answer.hits],
        }
        for answer in answers
    ]
    print(json.dumps(found, indent=2, ensure_ascii=False))


def _draw(answers: Any, sheet: Path) -> None:
    from tophit.report.sheet import SheetCell, contact_sheet

    rows = [
        (
            SheetCell(answer.image or Path(answer.hits[0].metadata["path"]), Path(answer.query).name),
            [SheetCell(Path(h.metadata["path"]), f"{h.metadata['label']}\n{h.score:.3f}") for h in answer.hits],
        )
        for answer in answers
        if answer.hits
    ]
    contact_sheet(rows, sheet)
    errors.print(f"Drawn into {sheet}", highlight=False, soft_wrap=True)
