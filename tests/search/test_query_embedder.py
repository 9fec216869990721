"""Commands that answer without torch: a query by the exported network, and whatever needs no network at all."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tophit.data.manifest import ImageRow
from tophit.models import build_embedder
from tophit.models.onnx_export import cached_graph
from tophit.search.catalogue import build_catalogue, open_catalogue, open_to_search
from tophit.search.query_embedder import FOLDER, keep_query_graph

WITHOUT_TORCH = """
import sys
from tophit.cli import main
try:
    main()
finally:
    assert "torch" not in sys.modules, "torch was imported"
"""


@pytest.fixture(scope="module")
def index(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose network was exported before, as indexing 500 images does."""
    torch.manual_seed(0)
    embedder = build_embedder("small", "random", dim=16, size=32, layer_norm=True)
    cached_graph(embedder)
    rows = [ImageRow(path, path.parent.name) for path in sorted(pictures.rglob("*.png"))]
    folder = tmp_path_factory.mktemp("quick") / "index"
    build_catalogue(embedder, rows, folder)[0].close()
    return folder


def run_without_torch(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def found_by_command(index: Path, *arguments: object) -> list[tuple[str, float]]:
    done = run_without_torch("search", index, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [(hit["id"], hit["score"]) for hit in json.loads(done.stdout)[0]["results"]]


def test_a_search_by_image_or_id_imports_no_torch_and_finds_the_same(index: Path, pictures: Path) -> None:
    query = pictures / "class 3" / "2.png"
    with open_catalogue(index) as catalogue:
        expected = catalogue.search([query], k=6)[0]
        by_id = catalogue.search_ids([str(query)], k=6)[0]
    found = found_by_command(index, query, "--k", 6)
    assert [name for name, _ in found] == [hit.id for hit in expected]
    np.testing.assert_allclose([score for _, score in found], [hit.score for hit in expected], atol=1e-4)
    assert found_by_command(index, "--id", query, "--k", 6) == [(hit.id, round(hit.score, 6)) for hit in by_id]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["items", "info", "INDEX"], 0),
        (["items", "duplicates", "INDEX"], 0),
        (["runs", "."], 0),
        (["train", "--list"], 0),
        (["train", "head", "--data", "nowhere", "--run", "x"], 2),
        (["train", "--resume", "nowhere"], 2),
        (["evaluate", "nowhere"], 2),
        (["report", "nowhere"], 2),
        (["plan", "nowhere"], 2),
        (["index", "nowhere", "--run", "x", "--out", "y"], 2),
        (["search", "nowhere", "a.jpg"], 2),
        (["search", "INDEX"], 2),
        (["serve", "nowhere"], 2),
    ],
    ids=str,
)
def test_what_needs_no_network_imports_no_torch(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_without_torch(*(index if each == "INDEX" else each for each in arguments))
    assert "torch was imported" not in done.stderr
    assert done.returncode == status, done.stderr


def test_crops_several_images_and_arrays_are_embedded_alike(index: Path, pictures: Path) -> None:
    path = pictures / "class 1" / "0.png"
    with open_catalogue(index) as usual, open_to_search(index) as quick:
        pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        for images in ([path], [path, pixels]):
            np.testing.assert_allclose(quick.embedder.encode(images), usual.embedder.encode(images), atol=1e-4)
        box = (2, 3, 30, 28)
        assert [hit.id for hit in quick.search_box(path, box)] == [hit.id for hit in usual.search_box(path, box)]
        assert quick.embedder.fingerprint() == usual.embedder.fingerprint()  # asked of the embedder itself


@pytest.mark.parametrize("harm", ["damaged", "missing", "another model's"])
def test_without_a_graph_that_fits_the_embedder_answers(index: Path, pictures: Path, tmp_path: Path, harm: str) -> None:
    copy = tmp_path / "index"
    shutil.copytree(index, copy)
    kept = copy / "v1" / FOLDER
    if harm == "missing":
        shutil.rmtree(kept)
    elif harm == "damaged":
        graph = kept / "features.onnx"
        graph.write_bytes(graph.read_bytes()[:-1] + b"?")
    else:
        about = json.loads((kept / "queries.json").read_text())
        (kept / "queries.json").write_text(json.dumps({**about, "fingerprint": "0" * 32}))
    query = pictures / "class 3" / "2.png"
    with open_catalogue(index) as usual, open_to_search(copy) as quick:
        assert quick.embedder.kept is None
        assert [hit.id for hit in quick.search([query])[0]] == [hit.id for hit in usual.search([query])[0]]


def test_a_network_that_was_not_exported_is_not_exported_for_this(pictures: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    embedder = build_embedder("small", "random", dim=8, size=32)
    assert not keep_query_graph(embedder, tmp_path)
    assert list(tmp_path.iterdir()) == []
