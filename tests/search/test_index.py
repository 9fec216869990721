import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import draw_picture
from tophit.data.folders import open_images
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.search import Index
from tophit.search.catalogue import build_catalogue, open_catalogue


def unit(random: np.random.Generator, count: int, dim: int) -> np.ndarray:
    vectors = random.normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_index(count: int = 50, dim: int = 8, seed: int = 0) -> tuple[Index, np.ndarray]:
    vectors = unit(np.random.default_rng(seed), count, dim)
    return Index.build(vectors, [f"id {i}" for i in range(count)], [{"n": i} for i in range(count)], "print"), vectors


def test_search_is_exact_and_best_first() -> None:
    index, vectors = make_index()
    queries = unit(np.random.default_rng(1), 7, 8)
    for query, hits in zip(queries, index.search(queries, k=5), strict=True):
        expected = np.argsort(-(vectors @ query), kind="stable")[:5]
        assert [hit.id for hit in hits] == [f"id {i}" for i in expected]
        assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
        assert [hit.score for hit in hits] == pytest.approx((vectors @ query)[expected], abs=1e-6)
        assert [hit.metadata["n"] for hit in hits] == expected.tolist()


def test_a_saved_index_opens_as_it_was(tmp_path: Path) -> None:
    index, vectors = make_index()
    index.save(tmp_path)
    again = Index.open(tmp_path)
    assert again.search(vectors[:3], 4) == index.search(vectors[:3], 4)
    assert again.fingerprint == "print"
    make_index(20)[0].save(tmp_path)
    assert len(Index.open(tmp_path)) == 20
    assert len(list(tmp_path.iterdir())) == 3  # the old files are gone


def test_more_results_than_items_an_empty_index_and_wrong_queries() -> None:
    index, vectors = make_index(3)
    assert len(index.search(vectors[0], k=100)[0]) == 3
    empty = Index.build(np.empty((0, 8), np.float32), [], [], "print")
    assert empty.search(vectors[:2], 5) == [[], []]
    with pytest.raises(TophitError, match="vectors of 8 numbers, the query has 5"):
        index.search(np.ones((1, 5)), 1)
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search(vectors, 0)
    with pytest.raises(TophitError, match="different from each other"):
        Index.build(vectors, ["a", "a", "b"], [{}] * 3, "print")
    with pytest.raises(ValueError, match="equally many"):
        Index.build(vectors, ["a"], [{}] * 3, "print")


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TophitError, match="There is no index in"):
        Index.open(tmp_path)
    make_index()[0].save(tmp_path)
    manifest = json.loads((tmp_path / "index.json").read_text())
    vectors = tmp_path / manifest["vectors"]
    content = vectors.read_bytes()
    vectors.write_bytes(content[: len(content) // 2])
    with pytest.raises(TophitError, match="is damaged"):
        Index.open(tmp_path)
    vectors.write_bytes(content)
    (tmp_path / "index.json").write_text(json.dumps({**manifest, "count": 49}))
    with pytest.raises(TophitError, match="49 items stated, 50 vectors"):
        Index.open(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({**manifest, "format": 2}))
    with pytest.raises(TophitError, match="format 2"):
        Index.open(tmp_path)


WRITER = """
import sys, numpy as np
from tophit.search import Index
for number in range(100_000):
    size = number % 7 + 1
    vectors = np.full((size, 4), 0.5, np.float32)
    Index.build(vectors, [str(i) for i in range(size)], [{}] * size, str(size)).save(sys.argv[1])
    print("saved", flush=True)
"""


def test_killed_while_writing_it_leaves_the_old_or_the_new_index(tmp_path: Path) -> None:
    for kill in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=dict(os.environ)
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.05 + 0.037 * kill)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        index = Index.open(tmp_path)
        assert len(index) == int(index.fingerprint)


def test_a_catalogue_finds_its_own_images_and_skips_unreadable_ones(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("text")
    rows = [*open_images(str(pictures)).rows, ImageRow(tmp_path / "bad.png", "x")]
    embedder = build_embedder("small", "random", dim=16, size=32)
    _, bad = build_catalogue(embedder, rows, tmp_path / "index")
    assert list(bad) == [48]
    catalogue = open_catalogue(tmp_path / "index")
    assert len(catalogue.index) == 48
    path = rows[17].path
    hit = catalogue.search([path], k=3)[0][0]
    assert (hit.id, hit.metadata["label"]) == (str(path), rows[17].label)
    assert hit.score == pytest.approx(1, abs=1e-5)
    assert catalogue.search([draw_picture(2, 99)], k=1)[0][0].rank == 1
    with pytest.raises(TophitError, match="None of the 1 images could be read"):
        build_catalogue(embedder, rows[-1:], tmp_path / "none")
    with pytest.raises(UsageError, match="holds other files; an index needs a folder of its own"):
        build_catalogue(embedder, rows, pictures)


def test_an_index_refuses_an_embedder_that_did_not_make_it(pictures: Path, tmp_path: Path) -> None:
    build_catalogue(build_embedder("small", "random", dim=16, size=32), open_images(str(pictures)).rows, tmp_path)
    build_embedder("small", "random", dim=16, size=32).save(tmp_path / "embedder")
    with pytest.raises(TophitError, match="not the one that made the index"):
        open_catalogue(tmp_path)
