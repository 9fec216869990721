"""A catalogue: an index of images together with the embedder that made it, ready to be searched by image."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from tophit.calibrating import StoredCalibration
from tophit.data.item_rows import to_item, to_row
from tophit.data.manifest import ImageRow
from tophit.embedding.vector_parts import (
    EmbeddedPart,
    part_files,
    part_paths,
    read_description,
    read_finished_description,
    read_part,
)
from tophit.errors import TophitError, UsageError
from tophit.evaluation.calibration import CUT_OFF
from tophit.files import read_checked_json, write_checked_json
from tophit.images.decode import Box, ImageInput, picture_size, read_image
from tophit.progress import Progress
from tophit.reranking import Reranking
from tophit.search.backend import Hit
from tophit.search.calibrate_items import calibrate_index, index_calibration
from tophit.search.chances import LeastChance, no_calibration
from tophit.search.field_values import check_fields
from tophit.search.index import Index
from tophit.search.naming import Name, check_cut_off, name_vectors
from tophit.search.query import AGAINST, ItemId, Query, Resolved, Where, Wording, answer, resolve_items
from tophit.search.query_embedder import keep_query_graph
from tophit.search.versions import (
    IndexOptions,
    add_version,
    is_catalogue,
    keep_images_folder,
    open_for_queries,
    open_version,
    read_versions,
    switch_version,
)

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

_ROWS = 4096  # embedded and written at a time, so that an interruption loses little
_LOADED = "loaded.json"

Example = ImageInput | ItemId


@dataclass(frozen=True)
class Catalogue:
    """An index and its embedder.

    Every search takes ``where`` (a filter), ``rerank`` (steps, in order) and ``group_by`` (a column: one result for
    each of its values, with the rest of the group in ``hit.others``). With a ``calibration``, results have chances;
    ``min_chance`` and ``precision`` end the lists by them.
    """

    index: Index
    embedder: "Embedder"
    calibration: StoredCalibration | None = None

    def __repr__(self) -> str:
        name = self.embedder.architecture["backbone"]
        return f"Catalogue: {len(self.index):,} items, vectors of {self.index.dim} numbers by {name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def answer(self, query: Query[Example], wording: Wording = Wording()) -> list[list[Hit]]:  # noqa: B008
        """Return the results of a query, best first: a list for each example, or one if it combines them."""
        query.check(wording, lambda source: not isinstance(source, ItemId))
        check_fields(self.index, query.fields)
        text = None if query.text is None else self.embedder.encode_text(query.text)[0]
        parts = [self._resolve(some, query.box) for some in (query.examples, query.like, query.unlike)]
        return answer(self.index, query, *parts, text=text, calibration=self.calibration)

    def search(
        self,
        images: Sequence[ImageInput],
        k: int = 10,
        where: Where = None,
        rerank: Sequence[Reranking] = (),
        group_by: str | None = None,
        min_chance: float | None = None,
        precision: float | None = None,
    ) -> list[list[Hit]]:
        """Return the k nearest items of each image, best first.

        ``min_chance`` leaves out results that are less likely to be right; ``precision`` keeps as many as are right
        with that chance on average. A list that they leave empty says why in ``nothing``.
        """
        if isinstance(images, str | Path):
            raise UsageError(f"search takes a list of images: write [{images!r}].")
        least = LeastChance(min_chance, precision)
        query = Query[Example](images, k=k, where=where, rerank=rerank, group_by=group_by, least=least)
        return self.answer(query) if len(images) else []

    def name(self, images: Sequence[Example], cut_off: float = CUT_OFF, where: Where = None) -> list[Name]:
        """Return what each image shows, by the labels of the nearest items: a label and its chance, or unknown."""
        if isinstance(images, str | Path):
            raise UsageError(f"name takes a list of images: write [{images!r}].")
        check_cut_off(cut_off)
        if self.calibration is None:
            raise no_calibration()
        check_fields(self.index, where or ())
        examples = self._resolve(images, None)
        return name_vectors(self.index, examples, self.calibration, where, cut_off) if examples else []

    def search_ids(
        self,
        ids: Sequence[str],
        k: int = 10,
        where: Where = None,
        rerank: Sequence[Reranking] = (),
        group_by: str | None = None,
        min_chance: float | None = None,
        precision: float | None = None,
    ) -> list[list[Hit]]:
        """Return the items nearest to each of some items; none finds itself."""
        examples = [ItemId(each) for each in ids]
        least = LeastChance(min_chance, precision)
        query = Query[Example](examples, k=k, where=where, rerank=rerank, group_by=group_by, least=least)
        return self.answer(query) if ids else []

    def search_text(
        self,
        texts: Sequence[str],
        k: int = 10,
        where: Where = None,
        rerank: Sequence[Reranking] = (),
        group_by: str | None = None,
    ) -> list[list[Hit]]:
        """Return the items nearest to each of some texts, best first; needs a model with a text tower.

        Words and pictures together: ``answer(Query([image], text="red", text_weight=0.5))``.
        """
        if isinstance(texts, str):
            raise UsageError(f"search_text takes a list of texts: write [{texts!r}].")
        return [
            self.answer(Query[Example](text=text, k=k, where=where, rerank=rerank, group_by=group_by))[0]
            for text in texts
        ]

    def search_box(
        self,
        image: str | Path,
        box: Box,
        k: int = 10,
        where: Where = None,
        rerank: Sequence[Reranking] = (),
        group_by: str | None = None,
    ) -> list[Hit]:
        """Return the items nearest to a part of an image: x1, y1, x2, y2 in pixels of the upright picture."""
        return self.answer(Query([image], box=box, k=k, where=where, rerank=rerank, group_by=group_by))[0]

    def search_examples(
        self,
        like: Sequence[Example],
        unlike: Sequence[Example] = (),
        k: int = 10,
        where: Where = None,
        rerank: Sequence[Reranking] = (),
        against: float = AGAINST,
        group_by: str | None = None,
    ) -> list[Hit]:
        """Return the items most like some examples and least like others (see ``combined_vector``).

        Examples are images or items; items given as examples are left out of the results.
        """
        query = Query[Example]((), like, unlike, k=k, where=where, rerank=rerank, against=against, group_by=group_by)
        return self.answer(query)[0]

    def example(self, text: str) -> Example:
        """Return what a user names: an item by its id, else an image file."""
        name = self.known_id(text)
        if name is not None:
            return ItemId(name)
        if Path(text).is_file():
            return Path(text)
        raise UsageError(f"'{text}' is neither the id of an item in the index nor an image file.")

    def known_id(self, text: str) -> str | None:
        """Return the id of the item that a user names: an id, a path from the working folder, or the end of one id."""
        names = [text, str(Path(text).absolute())]
        found = next((item.id for item in self.index.get(names) if item is not None), None)
        if found is not None or Path(text).is_absolute() or Path(text).is_file():
            return found
        ends = [item.id for item in self.index.items() if item.id.endswith(f"{os.sep}{text}")]
        if len(ends) > 1:
            raise UsageError(f"'{text}' is the end of {len(ends)} ids, such as {ends[0]} and {ends[1]}; write more.")
        return ends[0] if ends else None

    def add(self, rows: Sequence[ImageRow], progress: Progress | None = None) -> dict[int, str]:
        """Embed rows and upsert them; return why images could not be read, by row number from 0."""
        from tophit.embedding.rows import embed_rows  # here, because it imports torch

        bad: dict[int, str] = {}
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            embedded = embed_rows(self.embedder, part, progress, total=len(rows))
            bad |= {start + number: reason for number, reason in embedded.bad.items()}
            items = self._with_known_labels([to_item(part[number]) for number in embedded.rows])
            self.index.upsert([name for name, _ in items], embedded.vectors, [metadata for _, metadata in items])
        if len(bad) == len(rows):
            reasons = "; ".join(list(bad.values())[:3])
            raise TophitError(f"None of the {len(rows)} images could be read: {reasons}")
        return bad

    def _with_known_labels(self, items: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
        """Let items without a label keep the one they have in the index: images of one folder alone have none."""
        blank = [name for name, metadata in items if not metadata["label"]]
        known = {item.id: item.metadata.get("label") for item in self.index.get(blank) if item is not None}
        return [(name, {**metadata, "label": known[name]} if known.get(name) else metadata) for name, metadata in items]

    def _resolve(self, examples: Sequence[Example], box: Box | None) -> list[Resolved]:
        """Return the vectors of examples, in their order; a box is cut out of the images."""
        ids = [self.known_id(each.id) or each.id for each in examples if isinstance(each, ItemId)]
        images = [each if box is None else self._crop(each, box) for each in examples if not isinstance(each, ItemId)]
        items = iter(resolve_items(self.index, ids) if ids else ())
        vectors = iter(self.embedder.encode(images) if images else ())
        return [next(items) if isinstance(each, ItemId) else Resolved(next(vectors)) for each in examples]

    def _crop(self, image: ImageInput, box: Box) -> ImageInput:
        if not (0 <= box[0] < box[2] and 0 <= box[1] < box[3]):
            raise UsageError(f"A box has 0 <= x1 < x2 and 0 <= y1 < y2, not {','.join(f'{v:g}' for v in box)}.")
        if not isinstance(image, str | Path):
            raise UsageError("A box is cut out of an image file; crop other images yourself.")
        width, height = picture_size(image)
        if box[2] >= width + 1 or box[3] >= height + 1:  # a part of a pixel is a matter of rounding
            given, most = (",".join(f"{value:g}" for value in some) for some in (box, (0, 0, width, height)))
            raise UsageError(
                f"The box {given} reaches beyond {image}, which has {width}x{height} pixels; at most {most}."
            )
        return read_image(image, box, self.embedder.preprocessing.least_side)


def build_catalogue(
    embedder: "Embedder",
    rows: Sequence[ImageRow],
    folder: str | Path,
    progress: Progress | None = None,
    *,
    options: IndexOptions | None = None,
    replace: bool = False,
) -> tuple[Catalogue, dict[int, str]]:
    """Embed rows into the catalogue in a folder; return it, and why images could not be read by row number.

    An existing catalogue gets the rows added, and items of the same id are replaced. One made by another embedder is
    refused, unless ``replace`` asks for a new version beside it, which becomes active when it is complete.
    """
    with _growing(embedder, folder, options, replace) as (catalogue, _):
        bad = catalogue.add(rows, progress)
        keep_images_folder(folder, (row.path for row in rows))
    return open_catalogue(folder, writable=True), bad


def load_catalogue(
    embedder: "Embedder",
    embedded: str | Path,
    folder: str | Path,
    progress: Progress | None = None,
    *,
    options: IndexOptions | None = None,
) -> tuple[Catalogue, int]:
    """Load the output of ``tophit embed`` into the catalogue in a folder; return it and how many rows were written.

    Called again after an interruption, it continues with the parts that are missing.
    """
    if read_description(embedded)["fingerprint"] != embedder.fingerprint():
        raise UsageError(f"The vectors in {embedded} were made by another embedder than the one given; give that one.")
    with _growing(embedder, folder, options, replace=False) as (catalogue, name):
        written = load_embedded(catalogue.index, embedded, Path(folder) / name / _LOADED, progress)
        keep_images_folder(folder, part_paths(embedded))
    return open_catalogue(folder, writable=True), written


def open_to_search(folder: str | Path, writable: bool = False, **options: Any) -> Catalogue:
    """Open an index for a few searches or changes, as a command makes them: torch is imported only if it is needed.

    ``options`` are those of the local backend for the next compaction.
    """
    index, embedder = open_for_queries(folder, writable, **options)
    return Catalogue(index, cast("Embedder", embedder), index_calibration(folder, index.fingerprint))


def open_catalogue(folder: str | Path, writable: bool = False, version: str | None = None) -> Catalogue:
    """Open an index with its embedder; an embedder that did not make the index is refused."""
    index, embedder = open_version(folder, version, writable)
    return Catalogue(index, embedder, index_calibration(folder, index.fingerprint, version))


def load_embedded(index: Index, folder: str | Path, done_file: str | Path, progress: Progress | None = None) -> int:
    """Upsert every part of a folder that ``done_file`` does not name yet, and return how many rows were written.

    A part counts as done once its rows are durable, so an interruption costs one part, which is written again. A part
    that has changed since, by size and time, is loaded again. Vectors of another embedder are refused.
    """
    folder, done_file = Path(folder), Path(done_file)
    described = read_finished_description(folder)
    if described["fingerprint"] != index.fingerprint:
        raise UsageError(
            f"The vectors in {folder} were made by another embedder ({described['fingerprint']}) than this index "
            f"({index.fingerprint})."
        )
    if described["dim"] != index.dim:
        raise UsageError(f"The vectors in {folder} have {described['dim']} numbers, those of the index {index.dim}.")
    done = _loaded_parts(done_file)
    waiting = [path for path in part_files(folder) if done.get(str(path.absolute())) != _state(path)]
    written = 0
    for path in progress(waiting, len(waiting)) if progress else waiting:
        part = read_part(path, index.dim)
        for start in range(0, len(part.ids), _ROWS):
            rows = range(start, min(start + _ROWS, len(part.ids)))
            chosen = slice(rows.start, rows.stop)
            index.upsert(part.ids[chosen], part.vectors[chosen], [_metadata(part, row) for row in rows])
        written += len(part.ids)
        done[str(path.absolute())] = _state(path)
        write_checked_json(done_file, done)
    return written


def _loaded_parts(done_file: Path) -> dict[str, Any]:
    """Return which parts are loaded, in which state; from a damaged file none, so that all are loaded again."""
    try:
        return read_checked_json(done_file) if done_file.is_file() else {}
    except ValueError:
        return {}


def _metadata(part: EmbeddedPart, row: int) -> dict[str, Any]:
    """Return what an index keeps of a row, by the same rule as of a manifest's row."""
    own = {"path": part.paths[row], "label": part.labels[row], "split": part.splits[row]}
    return to_item(to_row(part.ids[row], {**part.metadata[row], **own}))[1]


def _state(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


@contextmanager
def _growing(
    embedder: "Embedder", folder: str | Path, options: IndexOptions | None, replace: bool
) -> Iterator[tuple[Catalogue, str]]:
    """Open the version to write to, creating it if needed, and make it active when the work is done."""
    known = read_versions(folder).versions if is_catalogue(folder) else {}
    own = [name for name, version in known.items() if version.fingerprint == embedder.fingerprint()]
    if known and not own and not replace:
        current = read_versions(folder).current
        raise UsageError(
            f"The index in {folder} ({current or 'unfinished'}) was made by another embedder. To change to this one: "
            f"tophit items reembed {folder} --run ..."
        )
    name = own[-1] if own else add_version(folder, embedder, options)
    index, loaded = open_version(folder, name, writable=True)
    with index:
        yield Catalogue(index, loaded), name
        index.compact()  # merges what was written and tunes the search for it
        calibrate_index(folder, index, name)
    keep_query_graph(loaded, Path(folder) / name)
    switch_version(folder, name)
