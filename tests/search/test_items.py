"""A manifest row becomes an item of an index and comes back; items of a feature file can be embedded again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tophit.data.folders import open_images
from tophit.data.item_rows import item_id, to_item, to_row
from tophit.data.manifest import ImageRow
from tophit.embedding.folder import embed_to_folder
from tophit.errors import TophitError
from tophit.models import build_embedder
from tophit.search.catalogue import build_catalogue, load_catalogue, open_catalogue
from tophit.search.reembed import compare_versions, reembed


def write_features(path: Path, channels: int, seed: int) -> None:
    """Write 12 features of 3 classes; two of them have the same name."""
    rng = np.random.default_rng(seed)
    names = [f"{n}.png" for n in range(11)] + ["0.png"]
    features = rng.normal(size=(12, channels)).astype(np.float32)
    np.savez(path, features=features, labels=np.arange(12) % 3, split=np.array(["test"] * 12), names=np.array(names))


def test_items_of_feature_files_are_embedded_again_by_a_model_for_features(tmp_path: Path) -> None:
    files = [tmp_path / "1" / "f.npz", tmp_path / "2" / "f.npz"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        write_features(file, 10, number)
    folder = tmp_path / "index"
    old, new = build_embedder("features/10", dim=4), build_embedder("features/10", dim=6)
    for file in files:  # one index of two files
        build_catalogue(old, open_images(str(file)).rows, folder)[0].close()
    made = reembed(folder, new)
    assert (made.count, made.bad) == (24, {})
    assert compare_versions(folder, made.version, k=3).queries == 24
    with open_catalogue(folder, version=made.version) as catalogue:
        for row in open_images(str(files[1])).rows:
            item = catalogue.index.get([f"{row.path}#{row.metadata['feature_row']}"])[0]
            assert item is not None
            features = np.load(files[1])["features"][[row.metadata["feature_row"]]]
            np.testing.assert_allclose(item.vector, new.embed_arrays(features)[0], atol=1e-6)


@pytest.mark.parametrize("backbone", ["small", "features/8"])
def test_a_model_that_can_not_take_the_features_says_so(backbone: str, tmp_path: Path) -> None:
    write_features(tmp_path / "f.npz", 10, 0)
    rows = open_images(str(tmp_path / "f.npz")).rows
    build_catalogue(build_embedder("features/10", dim=4), rows, tmp_path / "index")[0].close()
    other = build_embedder(backbone, "random", dim=4, size=32) if backbone == "small" else build_embedder(backbone)
    with pytest.raises(TophitError, match=rf"f.npz holds features of length 10, .* {backbone} can't use"):
        reembed(tmp_path / "index", other)


def test_a_row_comes_back_from_its_item() -> None:
    row = ImageRow(Path("/a/b.jpg"), "cat", "train", box=(1, 2, 30, 40.5), metadata={"price": "12", "empty": ""})
    name, metadata = to_item(row)
    assert (name, metadata["box"], metadata["price"]) == ("/a/b.jpg#1,2,30,40.5", [1, 2, 30, 40.5], 12)
    back = to_row(name, metadata)
    assert back == ImageRow(row.path, "cat", "train", box=row.box, metadata={"price": 12})
    assert to_item(back) == (name, metadata)
    column = {"path": "/a.jpg", "label": "x", "box": "large"}  # a column of the user's own
    assert (to_row("/a.jpg", column).box, to_row("/a.jpg", column).metadata) == (None, {"box": "large"})
    with pytest.raises(TophitError, match="has no path"):
        to_row("shoes/17", {"label": "boot"})


def test_the_box_is_in_the_metadata_whichever_way_a_row_gets_into_an_index(pictures: Path, tmp_path: Path) -> None:
    embedder = build_embedder("small", "random", dim=8, size=32)
    rows = [replace(open_images(str(pictures)).rows[0], box=(2, 2, 20, 20))]
    embed_to_folder(embedder, rows, tmp_path / "vectors")
    direct, _ = build_catalogue(embedder, rows, tmp_path / "a")
    loaded, _ = load_catalogue(embedder, tmp_path / "vectors", tmp_path / "b")
    for catalogue in (direct, loaded):
        with catalogue:
            assert catalogue.index.get([item_id(rows[0])])[0].metadata["box"] == [2, 2, 20, 20]
