"""A catalogue: an index of images together with the embedder that made it, ready to be searched by image."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tophit.data.embedding import embed_rows
from tophit.data.manifest import ImageRow, item_id
from tophit.errors import TophitError, UsageError
from tophit.models.embedder import Embedder, ImageInput, load
from tophit.progress import Progress
from tophit.search.engine import Hit
from tophit.search.index import Index, is_index


@dataclass(frozen=True)
class Catalogue:
    """An index and its embedder."""

    index: Index
    embedder: Embedder

    def search(self, images: Sequence[ImageInput], k: int = 10) -> list[list[Hit]]:
        """Return the k nearest items of each image, best first."""
        return self.index.search(self.embedder.encode(images), k)


def build_catalogue(
    embedder: Embedder, rows: Sequence[ImageRow], folder: str | Path, progress: Progress | None = None
) -> tuple[Catalogue, dict[int, str]]:
    """Embed rows, write index and embedder into a folder, and return them with the reasons for unreadable images.

    An item's id is its image's absolute path (with its box, if it has one); its metadata are label, split and what
    else the manifest says.
    """
    folder = Path(folder)
    if folder.is_dir() and any(folder.iterdir()) and not is_index(folder):
        raise UsageError(f"{folder} holds other files; an index needs a folder of its own.")
    embedded = embed_rows(embedder, rows, progress)
    if not embedded.rows:
        reasons = "; ".join(list(embedded.bad.values())[:3])
        raise TophitError(f"None of the {len(rows)} images could be read: {reasons}")
    chosen = [rows[i] for i in embedded.rows]
    metadata = [
        {"path": str(row.path.absolute()), "label": row.label, "split": row.split, **row.metadata} for row in chosen
    ]
    index = Index.build(embedded.vectors, [item_id(row) for row in chosen], metadata, embedder.fingerprint())
    embedder.save(folder / "embedder")
    index.save(folder)
    return Catalogue(index, embedder), embedded.bad


def open_catalogue(folder: str | Path) -> Catalogue:
    """Open an index with its embedder, refusing an embedder that did not make it."""
    index = Index.open(folder)
    embedder = load(Path(folder) / "embedder")
    if embedder.fingerprint() != index.fingerprint:
        raise TophitError(f"The embedder in {folder} is not the one that made the index; build the index anew.")
    return Catalogue(index, embedder)
