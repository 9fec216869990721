"""Search by words on an index of a tiny CLIP, against cosines computed here: in Python and on the command line."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.towers import tiny_towers
from typer.testing import CliRunner

import tophit
from tophit.cli import app
from tophit.data.folders import manifest_from_folder
from tophit.errors import UsageError
from tophit.models import build_embedder
from tophit.search.catalogue import ItemId, build_catalogue, open_catalogue
from tophit.search.query import Query, mixed_vectors


@pytest.fixture(scope="module")
def words_index(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the test pictures by a tiny CLIP, whose own folder is gone."""
    folder = tmp_path_factory.mktemp("words")
    embedder = tophit.load(tiny_towers("clip", folder / "model"))
    build_catalogue(embedder, manifest_from_folder(pictures).rows, folder / "index")[0].close()
    shutil.rmtree(folder / "model")
    return folder / "index"


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def nearest(catalogue: Any, vector: np.ndarray, k: int, without: str = "") -> list[str]:
    items = [item for item in catalogue.index.items() if item.id != without]
    scores = np.stack([item.vector for item in items]) @ unit(vector)
    return [items[i].id for i in np.argsort(-scores, kind="stable")[:k]]


def test_words_find_the_items_of_the_largest_cosine(words_index: Path) -> None:
    with open_catalogue(words_index) as catalogue:
        texts = ["a photo of a red mug", "class 3"]
        vectors = catalogue.embedder.encode_text(texts)
        found = catalogue.search_text(texts, k=6)
        for vector, hits in zip(vectors, found, strict=True):
            assert [hit.id for hit in hits] == nearest(catalogue, vector, 6)
            assert hits[0].score == pytest.approx(float(catalogue.index.get([hits[0].id])[0].vector @ vector), abs=1e-5)
        grouped = catalogue.search_text(texts[:1], k=3, group_by="label", where={"label": {"ne": "class 1"}})[0]
        assert len({hit.metadata["label"] for hit in grouped} - {"class 1"}) == 3


def test_words_and_pictures_are_mixed_by_their_weight(words_index: Path, pictures: Path) -> None:
    image = pictures / "class 0" / "0.png"
    with open_catalogue(words_index) as catalogue:
        text, picture = catalogue.embedder.encode_text("red mug")[0], catalogue.embedder.encode(image)[0]
        for weight in (0.0, 0.3, 1.0):
            hits = catalogue.answer(Query([image], text="red mug", text_weight=weight, k=8))[0]
            assert [hit.id for hit in hits] == nearest(catalogue, (1 - weight) * picture + weight * text, 8)
        by_item = catalogue.answer(Query([ItemId(str(image))], text="red mug", k=5))[0]
        assert [hit.id for hit in by_item] == nearest(catalogue, picture / 2 + text / 2, 5, without=str(image))
        less = catalogue.answer(Query(unlike=[image], text="red mug", k=5))[0]
        assert [hit.id for hit in less] == nearest(catalogue, text - 0.5 * picture, 5)
    with pytest.raises(UsageError, match=r"cancel each other out"):
        mixed_vectors(np.array([[1.0, 0]]), np.array([-1.0, 0]))


def test_the_command_takes_words(words_index: Path, pictures: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["search", *map(str, arguments)], catch_exceptions=False)

    found = json.loads(run(words_index, "--text", "blue mug", "--k", 4, "--json").stdout)
    with open_catalogue(words_index) as catalogue:
        assert [hit["id"] for hit in found[0]["results"]] == [
            hit.id for hit in catalogue.search_text(["blue mug"], 4)[0]
        ]
    assert found[0]["query"] == "blue mug"
    image = pictures / "class 0" / "0.png"
    mixed = json.loads(run(words_index, image, "--text", "blue", "--text-weight", 0.2, "--json").stdout)
    assert mixed[0]["query"] == f"{image} and blue"
    with pytest.raises(UsageError, match=r"--text-weight weighs words beside images: give --text too"):
        run(words_index, image, "--text-weight", 0.3)
    run(words_index, "--text", "blue mug", "--sheet", tmp_path / "s.png")
    assert (tmp_path / "s.png").is_file()
    without = tmp_path / "plain"
    embedder = build_embedder("small", "random", dim=8, size=32)
    build_catalogue(embedder, manifest_from_folder(pictures).rows[:4], without)[0].close()
    with pytest.raises(UsageError, match=r"'small' has no text tower. Backbones with one: hf/NAME"):
        run(without, "--text", "blue")
