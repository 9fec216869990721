"""A catalogue's life: it grows, is searched in every way, loaded in bulk, changes its model and goes back."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.search.servers import BACKENDS, place_of

from tophit.data.folders import open_images
from tophit.data.item_rows import item_id, to_item, to_row
from tophit.data.manifest import ImageRow, read_manifest
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.models.embedder import Embedder
from tophit.search import Index
from tophit.search.catalogue import build_catalogue, load_catalogue, load_embedded, open_catalogue
from tophit.search.query import ItemId, Query
from tophit.search.reembed import compare_versions, reembed
from tophit.search.versions import IndexOptions, read_versions, roll_back, switch_version


def embedder_of(dim: int) -> Embedder:
    return build_embedder("small", "random", dim=dim, size=32)


@pytest.fixture(scope="module")
def rows(pictures: Path) -> Sequence[ImageRow]:
    return open_images(str(pictures)).rows


@pytest.fixture(scope="module")
def folder(rows: Sequence[ImageRow], tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("catalogue") / "index"
    build_catalogue(embedder_of(16), rows, where)[0].close()
    return where


def test_every_way_to_ask(folder: Path, rows: Sequence[ImageRow]) -> None:
    path, other, unwanted = rows[0].path, rows[6].path, ItemId(str(rows[12].path))
    item = ItemId(str(path))
    with open_catalogue(folder) as catalogue:
        by_image, by_id = catalogue.answer(Query([path, item], k=5))
        assert by_image[0].id == str(path)
        assert [hit.id for hit in by_id] == [hit.id for hit in by_image[1:]] + [by_id[-1].id]
        whole = catalogue.answer(Query([path], box=(0, 0, 32, 32), k=3))[0]
        assert whole[0].score == pytest.approx(1, abs=1e-4)
        part = catalogue.answer(Query([path], box=(0, 0, 16, 16), k=3))[0]
        assert part[0].score < 0.9999
        liked = [catalogue.example(str(path)), catalogue.example(str(other))]
        assert liked[0] == item
        examples = catalogue.answer(Query(like=liked, unlike=[unwanted], k=5))[0]
        assert not {str(path), str(other), unwanted.id} & {hit.id for hit in examples}  # given by id: left out
        assert catalogue.search_examples(liked, [unwanted], 5) == examples
        assert len(catalogue.answer(Query([path, other], together=True, k=5))) == 1
        filtered = catalogue.answer(Query([path], where={"label": "class 5"}, k=48))[0]
        assert {hit.metadata["label"] for hit in filtered} == {"class 5"}
        assert len(filtered) == 6
        with pytest.raises(UsageError, match="neither the id"):
            catalogue.example("nothing.png")
        for wrong, words in (
            (Query(), "Say what to search for: images or ids, or like"),
            (Query(unlike=[item]), "unlike needs"),
            (Query([path, path], box=(0, 0, 1, 1)), "exactly one image"),
            (Query([item], box=(0, 0, 1, 1)), "exactly one image"),
            (Query([path], box=(5, 0, 1, 1)), "A box has"),
        ):
            with pytest.raises(UsageError, match=words):
                catalogue.answer(wrong)


def test_indexing_again_adds_and_replaces(rows: Sequence[ImageRow], tmp_path: Path) -> None:
    embedder = embedder_of(8)
    build_catalogue(embedder, rows[:10], tmp_path / "i")[0].close()
    catalogue, _ = build_catalogue(embedder, [ImageRow(rows[9].path, "new"), *rows[10:20]], tmp_path / "i")
    with catalogue:
        assert len(catalogue.index) == 20
        assert catalogue.index.count({"label": "new"}) == 1
    with pytest.raises(UsageError, match=r"another embedder.*tophit items reembed"):
        build_catalogue(embedder_of(8), rows, tmp_path / "i")


def test_manifest_columns_can_be_filtered_by(rows: Sequence[ImageRow], tmp_path: Path) -> None:
    with (tmp_path / "m.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "price", "sku", "x1", "y1", "x2", "y2"])
        for i, row in enumerate(rows[:6]):
            writer.writerow([row.path, row.label, i * 1.5, f"00{i}", *((0, 0, 20, 20) if i == 2 else [""] * 4)])
    catalogue, _ = build_catalogue(embedder_of(8), read_manifest(tmp_path / "m.csv").rows, tmp_path / "i")
    with catalogue:
        assert catalogue.index.count({"price": {"lt": 3}}) == 2
        assert catalogue.index.count({"sku": "003"}) == 1
        boxed = f"{rows[2].path}#0,0,20,20"
        item = catalogue.index.get([boxed])[0]
        assert item is not None
        assert item.metadata["box"] == [0, 0, 20, 20]
        old = {name: value for name, value in item.metadata.items() if name != "box"}
        assert to_row(boxed, item.metadata) == to_row(boxed, old)  # older parts have the box in the id alone
        assert to_row(boxed, item.metadata).box == (0, 0, 20, 20)


def write_embedded(folder: Path, embedder: Embedder, rows: Sequence[ImageRow], parts: int) -> None:
    """Write what ``tophit embed`` writes."""
    folder.mkdir()
    vectors = embedder.encode([row.path for row in rows])
    for number, some in enumerate(np.array_split(np.arange(len(rows)), parts)):
        table = {name: [to_item(rows[i])[1][name] for i in some] for name in ("path", "label", "split")}
        table |= {
            "id": [item_id(rows[i]) for i in some],
            "metadata": [json.dumps({"n": str(i), "note": ""}) for i in some],
        }
        flat = pa.array(vectors[some].ravel(), pa.float32())
        table["vector"] = pa.FixedSizeListArray.from_arrays(flat, embedder.dim)
        pq.write_table(pa.table(table), folder / f"part-{number % 2:04}-{number // 2:05}.parquet")
    described = {"format": 1, "fingerprint": embedder.fingerprint(), "dim": embedder.dim, "count_of_rows": len(rows)}
    (folder / "embedding.json").write_text(json.dumps(described))


@pytest.mark.parametrize("backend", BACKENDS)
def test_bulk_load_resumes_where_it_stopped(
    backend: str, request: pytest.FixtureRequest, rows: Sequence[ImageRow], tmp_path: Path
) -> None:
    embedder = embedder_of(8)
    write_embedded(tmp_path / "vectors", embedder, rows, 6)
    place = place_of(backend, request, tmp_path)
    options = IndexOptions(backend, *(() if backend == "local" else (place.location, place.name)))

    def stopping(items: Sequence[Path], total: int) -> Sequence[Path]:
        assert total == 6
        return items[:2]

    with load_catalogue(embedder, tmp_path / "vectors", tmp_path / "i", stopping, options=options)[0] as part:
        assert len(part.index) == 16
    catalogue, written = load_catalogue(embedder, tmp_path / "vectors", tmp_path / "i")
    with catalogue:
        assert (written, len(catalogue.index)) == (32, 48)
        hit = catalogue.search([rows[30].path], k=1, where={"n": {"gt": 5}})[0][0]
        assert (hit.id, hit.metadata["label"], hit.metadata["n"]) == (item_id(rows[30]), rows[30].label, 30)
    catalogue, written = load_catalogue(embedder, tmp_path / "vectors", tmp_path / "i")
    catalogue.close()
    assert written == 0


def test_bulk_load_refuses_what_does_not_fit(rows: Sequence[ImageRow], tmp_path: Path) -> None:
    embedder = embedder_of(8)
    write_embedded(tmp_path / "vectors", embedder, rows[:8], 2)
    with pytest.raises(UsageError, match=r"another embedder"):
        load_catalogue(embedder_of(8), tmp_path / "vectors", tmp_path / "i")
    assert not (tmp_path / "i").exists()
    with Index.create(tmp_path / "other", 8, "another") as index, pytest.raises(UsageError, match=r"another embedder"):
        load_embedded(index, tmp_path / "vectors", tmp_path / "done.json")
    (tmp_path / "vectors" / "part-0001-00000.parquet").unlink()
    with pytest.raises(TophitError, match=r"damaged: expected 8 vectors, found 4"):
        load_catalogue(embedder, tmp_path / "vectors", tmp_path / "i")
    with pytest.raises(TophitError, match=r"no vectors in .*; make them with: tophit embed"):
        load_catalogue(embedder, tmp_path, tmp_path / "i")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_new_model_beside_the_old_and_back(
    backend: str, request: pytest.FixtureRequest, rows: Sequence[ImageRow], tmp_path: Path
) -> None:
    place = place_of(backend, request, tmp_path)
    options = IndexOptions(backend, *(() if backend == "local" else (place.location, place.name)))
    old, new = embedder_of(8), embedder_of(12)
    folder = tmp_path / "i"
    build_catalogue(old, rows, folder, options=options)[0].close()
    made = reembed(folder, new)
    assert (made.version, made.count, made.bad) == ("v2", 48, {})
    assert read_versions(folder).current == "v1"  # nothing is switched yet
    found = compare_versions(folder, "v2", k=5)
    assert (found.queries, found.k) == (48, 5)
    assert 0 <= found.overlap <= 1
    with open_catalogue(folder) as first, open_catalogue(folder, version="v2") as second:
        shares = []
        for row in rows:
            names = [{h.id for h in c.search_ids([item_id(row)], 5)[0]} for c in (first, second)]
            shares.append(len(names[0] & names[1]) / 5)
    assert found.overlap == pytest.approx(np.mean(shares), abs=0.02)  # the same but for last bits of the vectors
    with open_catalogue(folder, writable=True) as catalogue:  # the old one lives on meanwhile
        catalogue.index.delete([item_id(rows[0])])
    assert reembed(folder, new).count == 47
    switch_version(folder, "v2")
    with open_catalogue(folder) as catalogue:
        assert catalogue.embedder.dim == catalogue.index.dim == 12
        assert catalogue.search([rows[5].path], k=1)[0][0].id == item_id(rows[5])
    with pytest.raises(TophitError, match=r"already made by this embedder"):
        reembed(folder, new)
    assert roll_back(folder) == "v1"
    with open_catalogue(folder) as catalogue:
        assert (catalogue.index.dim, len(catalogue.index)) == (8, 47)
    with pytest.raises(UsageError, match=r"no version 'v9'"):
        switch_version(folder, "v9")


def test_comparing_an_embedder_with_itself_is_all_in_common(rows: Sequence[ImageRow], tmp_path: Path) -> None:
    build_catalogue(embedder_of(8), rows, tmp_path / "i")[0].close()
    found = compare_versions(tmp_path / "i", "v1", rows[:10], k=4)
    assert (found.queries, found.overlap) == (10, 1)
    assert found.same_label[0] == found.same_label[1]


def test_no_password_is_written_down(rows: Sequence[ImageRow], tmp_path: Path) -> None:
    for backend, address, hint in (
        ("pgvector", "postgresql://me:secret@host/db", "PGPASSWORD"),
        ("pgvector", "host=h password=secret", "PGPASSWORD"),
        ("milvus", "http://me:secret@host:19530", "TOPHIT_MILVUS_TOKEN"),
    ):
        with pytest.raises(UsageError, match=hint):
            build_catalogue(embedder_of(8), rows[:2], tmp_path / "i", options=IndexOptions(backend, address))
        assert not (tmp_path / "i").exists()
    with pytest.raises(UsageError, match=r"needs an address: --uri"):
        build_catalogue(embedder_of(8), rows[:2], tmp_path / "j", options=IndexOptions("milvus"))


def test_an_address_where_nothing_answers_leaves_nothing_behind(rows: Sequence[ImageRow], tmp_path: Path) -> None:
    with pytest.raises(TophitError, match=r"can't be reached"):
        build_catalogue(
            embedder_of(8), rows[:2], tmp_path, options=IndexOptions("pgvector", "postgresql://127.0.0.1:9/x")
        )
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match=r"--recall tunes the local backend"):
        build_catalogue(embedder_of(8), rows[:2], tmp_path, options=IndexOptions("milvus", "http://x", recall=0.9))


def test_an_interrupted_load_goes_on(rows: Sequence[ImageRow], tmp_path: Path) -> None:
    embedder = embedder_of(8)
    write_embedded(tmp_path / "vectors", embedder, rows, 6)

    def interrupted(items: Sequence[Path], total: int) -> Iterator[Path]:
        yield from items[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_catalogue(embedder, tmp_path / "vectors", tmp_path / "i", interrupted)
    with pytest.raises(TophitError, match=r"unfinished; run the same tophit index command again"):
        open_catalogue(tmp_path / "i")
    catalogue, written = load_catalogue(embedder, tmp_path / "vectors", tmp_path / "i")
    with catalogue:
        assert (written, len(catalogue.index)) == (24, 48)
