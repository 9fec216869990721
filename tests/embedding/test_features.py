import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tophit.data.folders import manifest_from_folder
from tophit.data.manifest import ImageRow
from tophit.embedding import features as module
from tophit.embedding.features import cached_features
from tophit.embedding.rows import embed_rows
from tophit.images.decode import read_image
from tophit.models import Embedder, build_embedder
from tophit.models.runtimes import TorchRuntime


@pytest.fixture
def embedder() -> Embedder:
    torch.manual_seed(0)
    return build_embedder("small", "random", dim=8, size=32)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the images that the backbone really sees."""
    seen: list[int] = []

    class Counting(TorchRuntime):
        def compute(self, images: np.ndarray) -> np.ndarray:
            seen.append(len(images))
            return super().compute(images)

    monkeypatch.setattr(module, "choose_runtime", lambda embedder, images: Counting(embedder))
    return seen


def test_features_are_the_backbones_and_are_computed_once(
    embedder: Embedder, pictures: Path, tmp_path: Path, computed: list[int]
) -> None:
    rows = manifest_from_folder(pictures).rows
    first = cached_features(embedder, rows, folder=tmp_path)
    assert sum(computed) == 48
    images = np.stack(
        [embedder.preprocessing(read_image(row.path, least_side=embedder.preprocessing.least_side)) for row in rows]
    )
    with torch.inference_mode():
        expected = embedder.eval().features(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(first.values, expected, rtol=1e-5, atol=1e-6)
    second = cached_features(embedder, rows, folder=tmp_path)
    assert sum(computed) == 48
    assert (second.values == first.values).all()


def test_the_key_is_the_content_not_the_name(
    embedder: Embedder, pictures: Path, tmp_path: Path, computed: list[int]
) -> None:
    folder = shutil.copytree(pictures, tmp_path / "copy")
    rows = manifest_from_folder(pictures).rows
    before = cached_features(embedder, rows, folder=tmp_path / "cache")
    renamed = folder / "class 0" / "renamed.png"
    (folder / "class 0" / "0.png").rename(renamed)
    assert (
        cached_features(embedder, [ImageRow(renamed, "x")], folder=tmp_path / "cache").values == before.values[0]
    ).all()
    assert sum(computed) == 48
    shutil.copy(folder / "class 1" / "0.png", renamed)
    changed = cached_features(embedder, [ImageRow(renamed, "x")], folder=tmp_path / "cache")
    assert (changed.values == before.values[6]).all()
    boxed = cached_features(embedder, [ImageRow(renamed, "x", box=(0, 0, 20, 20))], folder=tmp_path / "cache")
    assert sum(computed) == 49
    assert (boxed.values != changed.values).any()


def test_other_weights_pooling_or_preprocessing_have_features_of_their_own(
    embedder: Embedder, pictures: Path, tmp_path: Path, computed: list[int]
) -> None:
    rows = manifest_from_folder(pictures).rows[:4]
    for other in (
        embedder,
        build_embedder("small", "random", dim=8, size=32),
        build_embedder("small", "random", dim=8, size=24),
    ):
        cached_features(other, rows, folder=tmp_path)
    assert sum(computed) == 12
    with torch.no_grad():
        embedder.head.weight.zero_()  # type: ignore[union-attr,operator]
    cached_features(embedder, rows, folder=tmp_path)
    assert sum(computed) == 12  # the head is not part of the key


def test_unreadable_rows_are_reported_and_left_out(embedder: Embedder, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("text")
    rows = [
        ImageRow(tmp_path / "bad.png", "x"),
        *manifest_from_folder(pictures).rows[:2],
        ImageRow(tmp_path / "no", "x"),
    ]
    found = cached_features(embedder, rows, folder=tmp_path / "cache")
    assert found.rows == [1, 2]
    assert found.values.shape == (2, 256)
    assert "not an image" in found.bad[0]
    assert "no such file" in found.bad[3]


def test_rows_embed_alike_from_the_cache_and_through_the_whole_network(embedder: Embedder, pictures: Path) -> None:
    rows = manifest_from_folder(pictures).rows
    cached = embed_rows(embedder, rows)
    embedder.trained = "all"
    whole = embed_rows(embedder, rows, final=False)
    assert cached.rows == whole.rows == list(range(48))
    np.testing.assert_allclose(cached.vectors, whole.vectors, atol=1e-5)
    np.testing.assert_allclose(whole.vectors, embedder.encode([row.path for row in rows]), atol=1e-5)
