"""A catalogue: an index of images together with the embedder that made it, ready to be searched by image."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tophit.data.manifest import ImageRow, item_id
from tophit.embedding.rows import embed_rows
from tophit.embedding.vector_parts import read_description
from tophit.errors import TophitError, UsageError
from tophit.images.decode import Box, read_image
from tophit.models.embedder import Embedder, ImageInput
from tophit.progress import Progress
from tophit.reranking import Reranking
from tophit.search.bulk import load_embedded
from tophit.search.engine import Hit
from tophit.search.index import Index
from tophit.search.plain_values import stored_value
from tophit.search.query import AGAINST, combined_query, search_by_id, search_vectors, vectors_of_items
from tophit.search.versions import EngineChoice, add_version, is_catalogue, open_version, read_versions, switch_version

_ROWS = 4096  # embedded and written at a time, so that an interruption loses little
LOADED = "loaded.json"

Where = Mapping[str, Any] | None


@dataclass(frozen=True)
class ItemId:
    """An item of the index as an example, where an image could stand too."""

    id: str


Example = ImageInput | ItemId


@dataclass(frozen=True)
class Catalogue:
    """An index and its embedder. Every search takes ``where`` (a filter) and ``rerank`` (steps, in order)."""

    index: Index
    embedder: Embedder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def search(
        self, images: Sequence[ImageInput], k: int = 10, where: Where = None, rerank: Sequence[Reranking] = ()
    ) -> list[list[Hit]]:
        """Return the k nearest items of each image, best first."""
        return search_vectors(self.index, self.embedder.encode(images), k, where, rerank)

    def search_ids(
        self, ids: Sequence[str], k: int = 10, where: Where = None, rerank: Sequence[Reranking] = ()
    ) -> list[list[Hit]]:
        """Return the items nearest to each of some items; none finds itself."""
        return search_by_id(self.index, ids, k, where, rerank)

    def search_box(
        self, image: str | Path, box: Box, k: int = 10, where: Where = None, rerank: Sequence[Reranking] = ()
    ) -> list[Hit]:
        """Return the items nearest to a part of an image: x1, y1, x2, y2 in pixels of the upright picture."""
        if not (0 <= box[0] < box[2] and 0 <= box[1] < box[3]):
            raise UsageError(f"A box has 0 <= x1 < x2 and 0 <= y1 < y2, not {','.join(f'{v:g}' for v in box)}.")
        crop = read_image(image, box, self.embedder.preprocessing.least_side)
        return search_vectors(self.index, self.embedder.encode([crop]), k, where, rerank)[0]

    def search_examples(
        self,
        like: Sequence[Example],
        unlike: Sequence[Example] = (),
        k: int = 10,
        where: Where = None,
        rerank: Sequence[Reranking] = (),
        against: float = AGAINST,
    ) -> list[Hit]:
        """Return the items most like some examples and least like others (see ``combined_query``).

        Examples are images or items; items given as examples are left out of the results.
        """
        query = combined_query(self.vectors(like), self.vectors(unlike), against)
        named = [each.id for each in (*like, *unlike) if isinstance(each, ItemId)]
        return search_vectors(self.index, query, k, where, rerank, [named])[0]

    def vectors(self, examples: Sequence[Example]) -> np.ndarray:
        """Return the unit vectors (n, dim) of examples, in their order."""
        rows = np.empty((len(examples), self.index.dim), np.float32)
        items = {place: each.id for place, each in enumerate(examples) if isinstance(each, ItemId)}
        images = {place: each for place, each in enumerate(examples) if not isinstance(each, ItemId)}
        if items:
            rows[list(items)] = vectors_of_items(self.index, list(items.values()))
        if images:
            rows[list(images)] = self.embedder.encode(list(images.values()))
        return rows

    def example(self, text: str) -> Example:
        """Return what a user names: an item by its id, else an image file."""
        if self.index.get([text])[0] is not None:
            return ItemId(text)
        if Path(text).is_file():
            return Path(text)
        raise UsageError(f"'{text}' is neither the id of an item in the index nor an image file.")

    def add(self, rows: Sequence[ImageRow], progress: Progress | None = None) -> dict[int, str]:
        """Embed rows and upsert them; return the reasons for unreadable images by row number from 0."""
        bad: dict[int, str] = {}
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            embedded = embed_rows(self.embedder, part, progress, total=len(rows))
            bad |= {start + number: reason for number, reason in embedded.bad.items()}
            chosen = [part[number] for number in embedded.rows]
            self.index.upsert([item_id(row) for row in chosen], embedded.vectors, [item_metadata(r) for r in chosen])
        if len(bad) == len(rows):
            reasons = "; ".join(list(bad.values())[:3])
            raise TophitError(f"None of the {len(rows)} images could be read: {reasons}")
        return bad


def build_catalogue(
    embedder: Embedder,
    rows: Sequence[ImageRow],
    folder: str | Path,
    progress: Progress | None = None,
    *,
    choice: EngineChoice | None = None,
    replace: bool = False,
) -> tuple[Catalogue, dict[int, str]]:
    """Embed rows into the catalogue in a folder and return it with the reasons for unreadable images.

    A catalogue that is there gets the rows added, items of the same id replaced; one of another embedder is refused,
    unless ``replace`` asks for a new version beside it, which is put in force when it is complete. An item's id is its
    image's absolute path (with its box, if it has one); its metadata are path, label, split and what else the manifest
    says.
    """
    with _growing(embedder, folder, choice, replace) as (catalogue, _):
        bad = catalogue.add(rows, progress)
    return open_catalogue(folder, writable=True), bad


def load_catalogue(
    embedder: Embedder,
    embedded: str | Path,
    folder: str | Path,
    progress: Progress | None = None,
    *,
    choice: EngineChoice | None = None,
) -> tuple[Catalogue, int]:
    """Load the output of ``tophit embed`` into the catalogue in a folder; return it and how many rows were written.

    Typed again after an interruption it goes on with the parts that are missing.
    """
    if read_description(embedded)["fingerprint"] != embedder.fingerprint():
        raise UsageError(f"The vectors in {embedded} were made by another embedder than the one given; give that one.")
    with _growing(embedder, folder, choice, replace=False) as (catalogue, name):
        written = load_embedded(catalogue.index, embedded, Path(folder) / name / LOADED, progress)
    return open_catalogue(folder, writable=True), written


def open_catalogue(folder: str | Path, writable: bool = False, version: str | None = None) -> Catalogue:
    """Open an index with its embedder, refusing an embedder that did not make it."""
    return Catalogue(*open_version(folder, version, writable))


def item_metadata(row: ImageRow) -> dict[str, Any]:
    """Return what a catalogue keeps of an image beside its vector."""
    box = {} if row.box is None else {"box": list(row.box)}
    read = {name: stored_value(value) for name, value in row.metadata.items()}
    plain = {name: value for name, value in read.items() if value is not None}
    return {**plain, "path": str(row.path.absolute()), "label": row.label, "split": row.split, **box}


@contextmanager
def _growing(
    embedder: Embedder, folder: str | Path, choice: EngineChoice | None, replace: bool
) -> Iterator[tuple[Catalogue, str]]:
    """Open the version to write to, made if need be, and put it in force when the work is done."""
    known = read_versions(folder).versions if is_catalogue(folder) else {}
    own = [name for name, version in known.items() if version.fingerprint == embedder.fingerprint()]
    if known and not own and not replace:
        current = read_versions(folder).current
        raise UsageError(
            f"The index in {folder} ({current or 'begun'}) was made by another embedder. To change over to this one: "
            f"tophit items reembed {folder} --run ..."
        )
    name = own[-1] if own else add_version(folder, embedder, choice)
    index, loaded = open_version(folder, name, writable=True)
    with index:
        yield Catalogue(index, loaded), name
        index.compact()  # merges what was written and tunes the search for it
    switch_version(folder, name)
