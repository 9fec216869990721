"""The commands index and search."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table
from typer.core import TyperCommand

from tophit.cli.shell import Verbose, app, console, errors
from tophit.errors import UsageError

if TYPE_CHECKING:
    from tophit.search import Hit

WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only items with: label=cat, label=cat,dog, price<10, sold!=true (repeatable)."),
]

RecallOption = Annotated[
    float | None, typer.Option("--recall", min=0.5, max=1, help="The recall that a large index is tuned for.")
]
MemoryOption = Annotated[
    str | None,
    typer.Option("--memory", help="What a large index may hold in memory: 2GB. Without: half of the machine's."),
]
BuildOption = Annotated[
    str | None,
    typer.Option("--build", help="How long choosing and building a large index may take: 5min. Without: 10min."),
]


class _IndexCommand(TyperCommand):
    """Asks the registry what to say about backends, and only when the help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with what each backend says about itself."""
        from tophit.registry import names
        from tophit.search.backend import backend_facts

        known = {name: backend_facts(name) for name in names("backend")}
        texts = {
            "backend": f"Where the vectors are kept: {', '.join(known)}, or package.module:Name.",
            "kind": "Kind of index. " + "; ".join(f"{n}: {', '.join(f.kinds)}" for n, f in known.items() if f.kinds),
        }
        for option in ("uri", "dsn"):
            said = [f"{n}: {f.address_like}" for n, f in known.items() if f.address == f"--{option}" and f.address_like]
            texts[option] = "; ".join(said)
        for parameter in self.params:
            if parameter.name in texts:
                parameter.help = texts[parameter.name]  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


@app.command(
    cls=_IndexCommand,
    epilog="Examples: tophit index images/ --run runs/mine --out mine.index · "
    "tophit index --from vectors/ --run runs/mine --out mine.index · "
    "tophit index images/ --run runs/mine --out mine.index --backend milvus --uri http://localhost:19530",
)
def index(
    images: Annotated[str | None, typer.Argument(help="A manifest, a folder of images, or the set 'icons'.")] = None,
    run: Annotated[str, typer.Option("--run", help="A run, an embedder's folder, or a backbone's name.")] = ...,  # type: ignore[assignment]
    out: Annotated[Path, typer.Option("--out", help="The folder of the index; an existing one grows.")] = ...,  # type: ignore[assignment]
    vectors: Annotated[
        Path | None, typer.Option("--from", help="Instead of images: a folder that tophit embed wrote.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Which rows: train, validation, test, or all.")] = "all",
    dim: Annotated[
        int | None,
        typer.Option("--dim", min=1, help="Keep only the first DIM numbers of each vector (see loss.prefixes)."),
    ] = None,
    recall: RecallOption = None,
    memory: MemoryOption = None,
    build: BuildOption = None,
    backend: Annotated[str | None, typer.Option("--backend", "--engine")] = None,
    uri: Annotated[str, typer.Option("--uri")] = "",
    dsn: Annotated[str, typer.Option("--dsn")] = "",
    kind: Annotated[str | None, typer.Option("--kind")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Start of the collection's or table's name; without: tophit.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Embed images and write an index that can be searched, or add them to one."""
    if (images is None) == (vectors is None):
        raise UsageError("Give either images or --from a folder of vectors.")
    if vectors is not None and dim is not None:
        raise UsageError("--dim shortens the vectors of images that are embedded; those of --from stay as they are.")
    if uri and dsn:
        raise UsageError("An index has one address: give either --uri or --dsn.")
    from tophit.api import images_for, without_labels
    from tophit.embedding.vector_parts import read_description
    from tophit.files import check_cache, check_folder
    from tophit.models.description import check_shorter
    from tophit.models.named import check_model
    from tophit.search.versions import IndexOptions, check_options

    check_folder(out, "--out")
    check_cache()
    check_model(run)
    check_shorter(run, dim)
    options = IndexOptions(backend, uri or dsn, name, kind, recall, memory, build)
    check_options(out, options)
    if vectors is not None:
        read_description(vectors)
    part = None if images is None else images_for(images, run, split)
    from tophit.models import load
    from tophit.progress import TerminalView
    from tophit.search.catalogue import build_catalogue, load_catalogue
    from tophit.search.local.describing import why_exact

    view = TerminalView(console)
    if part is None:
        assert vectors is not None
        catalogue, written = load_catalogue(load(run), vectors, out, view.track("Loading"), options=options)
        view.note(f"{written} vectors written.")
    else:
        if part.left_out:
            view.note(part.left_out)
        if sentence := without_labels(part):
            view.note(sentence)
        embedder = load(run) if dim is None else load(run).shortened(dim)
        catalogue, bad = build_catalogue(embedder, part.rows, out, view.track("Embedding"), options=options)
        for row, reason in bad.items():
            view.note(f"Skipped row {part.number(row)}: {reason}")
    with catalogue:
        command = f"tophit search {shlex.quote(str(out))} IMAGE"
        if catalogue.embedder.takes_words:
            command += " or --text WORDS"
        console.print(
            f"{len(catalogue.index)} images are in {out}. Search it with: {command}", highlight=False, soft_wrap=True
        )
        if (told := catalogue.calibration) is not None:
            for sentence in told.sentences(labelled=told.per_class is not None):
                console.print(sentence, highlight=False)
        stats = catalogue.index.stats()
        if stats.get("recall@10", 1) < 1:
            console.print(f"Kind of index: {stats['kind']}; recall@10 measured: {stats['recall@10']:.3f}")
        if kind is not None and (reason := why_exact(stats)):
            console.print(reason, highlight=False)


@app.command(
    epilog="Examples: tophit search mine.index query.png --k 10 --sheet out.png · "
    "tophit search mine.index photo.jpg --box 40,20,300,280 --where label=cat --where 'price<10' · "
    "tophit search mine.index --like a.png --like b.png --unlike c.png · "
    "tophit search mine.index query.png --rerank k-reciprocal · "
    "tophit search mine.index query.png --group-by sku --csv · "
    "tophit search mine.index query.png --min-chance 0.5 · "
    "tophit search clip.index --text 'red mug with a handle'"
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
    text: Annotated[
        str | None, typer.Option("--text", help="Search by words, alone or mixed with images; for CLIP and SigLIP.")
    ] = None,
    text_weight: Annotated[
        float, typer.Option("--text-weight", min=0, max=1, help="How much words weigh beside images.")
    ] = 0.5,
    together: Annotated[bool, typer.Option("--together", help="All images and ids as one query.")] = False,
    where: WhereOption = None,
    rerank: Annotated[
        list[str] | None,
        typer.Option("--rerank", help="alpha-qe or k-reciprocal, with settings as in alpha-qe:alpha=2 (repeatable)."),
    ] = None,
    group_by: Annotated[
        str | None,
        typer.Option("--group-by", metavar="COLUMN", help="One result for each value of a column, the best item."),
    ] = None,
    others: Annotated[bool, typer.Option("--others", help="With --group-by: also the rest of each group.")] = False,
    min_chance: Annotated[
        float | None, typer.Option("--min-chance", help="Leave out results that are less likely to be right, as 0.5.")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            "--precision", help="End the list where the expected share of right results falls below, as 0.95."
        ),
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="How many results.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False,
    sheet: Annotated[Path | None, typer.Option("--sheet", help="Also draw the results into this PNG.")] = None,
    verbose: Verbose = False,
) -> None:
    """Find the indexed images nearest to images, items or examples: rank, score, chance, label, path."""
    from tophit.images.decode import check_pictures
    from tophit.reranking import parse_reranking
    from tophit.search.catalogue import open_to_search
    from tophit.search.chances import LeastChance
    from tophit.search.filters import parse_typed_filter
    from tophit.search.query import ItemId, Query, Wording
    from tophit.search.result_rows import results_as_json, write_results_csv
    from tophit.search.versions import read_versions

    if as_json and as_csv:
        raise UsageError("Choose one of --json and --csv.")
    if others and group_by is None:
        raise UsageError("--others shows the rest of each group: add --group-by COLUMN.")
    images, names = queries or [], ids or []
    crop = None if box is None else _box(box)
    conditions, steps = parse_typed_filter(where or []), [parse_reranking(text) for text in rerank or []]
    if (like or unlike) and (images or names) and not together:
        raise UsageError("To search by images or --id and by --like or --unlike as one query, add --together.")
    wording = Wording("--", "images, --id, --text", "one image and no --id")
    if not (images or names or like or unlike or text):
        Query().check(wording, bool)  # says what is missing before the index is opened
    read_versions(folder)
    check_pictures(images)
    with open_to_search(folder) as catalogue:
        liked, unliked = ([catalogue.example(text) for text in texts or ()] for texts in (like, unlike))
        query = Query(
            [*images, *map(ItemId, names)],
            liked,
            unliked,
            crop,
            together,
            k=k,
            where=conditions,
            rerank=steps,
            group_by=group_by,
            least=LeastChance(min_chance, precision),
            text=text,
            text_weight=text_weight,
        )
        found = catalogue.answer(query, wording)
        if conditions and not any(found) and not catalogue.index.count(conditions):
            from tophit.search.field_values import why_nothing

            errors.print(why_nothing(catalogue.index, conditions), highlight=False, markup=False, soft_wrap=True)
    if query.is_combined:
        wanted = [*map(str, images), *names, *(like or ()), *([text] if text is not None else ())]
        titles = [f"like {', '.join(wanted)}" + (f", unlike {', '.join(unlike)}" if unlike else "")]
        pictures = [next((each for each in (*images, *liked) if isinstance(each, Path)), None)]
    else:
        titles = [*(f"{image} ({_box_text(crop)})" if crop else str(image) for image in images), *names]
        pictures = [*images, *(None for _ in names)]
        if text is not None and not titles:
            titles, pictures = [text], [None]
        elif text is not None:
            titles = [f"{title} and {text}" for title in titles]
    if as_json:
        print(json.dumps(results_as_json(titles, found, others), indent=2, ensure_ascii=False))
    elif as_csv:
        write_results_csv(titles, found, sys.stdout, others)
    else:
        for title, hits in zip(titles, found, strict=True):
            if getattr(hits, "nothing", None) is None:
                console.print(hits_table(title, hits, group_by, others))
    for title, hits in zip(titles, found, strict=True):
        if not as_json and (nothing := getattr(hits, "nothing", None)) is not None:
            told = errors if as_csv else console
            told.print(f"{title}: {nothing.reason}", highlight=False, markup=False, soft_wrap=True)
        if (early := getattr(hits, "stopped_at", None)) is not None:
            errors.print(
                f"{title}: only {len(hits)} groups among the nearest {early:,} items; there may be more farther away.",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
    if sheet is not None:
        _draw(titles, pictures, found, sheet)


_BESIDE_PATHS = 50  # columns of a terminal that the rest of a table of results takes


def hits_table(title: str, hits: Any, group_by: str | None = None, with_others: bool = False) -> Table:
    """Return a table of results: rank, score, label, path; with groups, their value and how many others they have.

    Long paths are shown below the folder that all are in, which the caption names.
    """
    from tophit.data.item_rows import deepest_folder
    from tophit.search.chances import percent

    shown = [one for hit in hits for one in ((hit, *hit.others) if with_others else (hit,))]
    paths = [str(one.metadata.get("path", one.id)) for one in shown]
    folder = deepest_folder(str(Path(path).parent) for path in paths if Path(path).is_absolute())
    too_long = max(map(len, paths), default=0) > console.width - _BESIDE_PATHS
    inside = Path(folder) if too_long and folder not in (None, "/") else None
    own = [] if group_by in (None, "label") else [str(group_by)]  # the table has the label anyway
    grouped = [] if group_by is None else [*map(escape, own), Column("others", justify="right")]
    told = ["chance"] if any(hit.chance is not None for hit in hits) else []
    table = Table("rank", "score", *told, "label", *grouped, Column("path", overflow="fold"), title=escape(title))
    for hit in hits:
        for one in (hit, *hit.others) if with_others else (hit,):
            group = (
                []
                if group_by is None
                else [*(escape(str(one.metadata.get(name, ""))) for name in own), str(len(hit.others))]
            )
            if one is not hit:
                group = [""] * len(group)
            path, label = Path(str(one.metadata.get("path", one.id))), one.metadata.get("label", "")
            path = str(path.relative_to(inside) if inside is not None and path.is_relative_to(inside) else path)
            rank = str(hit.rank) if one is hit else ""
            chance = ["" if one.chance is None else percent(one.chance)]
            table.add_row(rank, f"{one.score:.4f}", *(chance if told else []), escape(str(label)), *group, escape(path))
    if inside is not None:
        table.caption, table.caption_justify = f"paths in {escape(str(inside))}", "left"
    return table


def _box(text: str) -> tuple[float, float, float, float]:
    try:
        x1, y1, x2, y2 = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--box takes four numbers x1,y1,x2,y2, not '{text}'.") from None
    return x1, y1, x2, y2


def _box_text(box: tuple[float, float, float, float]) -> str:
    return ",".join(f"{value:g}" for value in box)


def _draw(
    titles: Sequence[str], pictures: Sequence[Path | None], found: "Sequence[Sequence[Hit]]", sheet: Path
) -> None:
    from tophit.images.sheet import SheetCell, contact_sheet
    from tophit.search.chances import percent

    def words(hit: "Hit") -> str:
        chance = "" if hit.chance is None else f" · {percent(hit.chance)}"
        return f"{hit.metadata.get('label', '')}\n{hit.score:.3f}{chance}"

    rows = [
        (
            SheetCell(picture or Path(hits[0].metadata["path"]), Path(title).name),
            [SheetCell(Path(hit.metadata["path"]), words(hit)) for hit in hits],
        )
        for title, picture, hits in zip(titles, pictures, found, strict=True)
        if hits
    ]
    if note := contact_sheet(rows, sheet):
        errors.print(note, highlight=False, markup=False, soft_wrap=True)
    errors.print(f"Results drawn into {sheet}", highlight=False, soft_wrap=True)
