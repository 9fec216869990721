"""The estimator: scikit-learn's own checks on features, and images in a pipeline."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from tophit.errors import UsageError
from tophit.images.decode import BadImage
from tophit.sklearn import Embedder

SMALL = {"backbone": "small", "weights": "random", "size": 32, "dim": 16}
ONE_EPOCH = {"epochs": 1}
Samples = tuple[list[str], list[str]]


@pytest.fixture
def samples(pictures: Path) -> Samples:
    paths = sorted(map(str, pictures.rglob("*.png")))
    return paths, [Path(path).parent.name for path in paths]


def tiny() -> Embedder:
    return Embedder(embedder=SMALL, schedule=ONE_EPOCH)


@parametrize_with_checks([Embedder(embedder={"dim": 8}, schedule=ONE_EPOCH)])
def test_scikit_learns_checks_with_rows_of_features_as_samples(estimator: Embedder, check: Callable[..., None]) -> None:
    """None is expected to fail. Samples of the checks are numbers, so images are tested below."""
    check(estimator)


def test_vectors_of_images_are_unit_vectors_of_the_embedder_that_was_learned(samples: Samples) -> None:
    paths, labels = samples
    model = tiny().fit(paths, labels)
    vectors = model.transform(np.asarray(paths).reshape(-1, 1))  # a column, as of a table
    assert vectors.shape == (48, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors, model.embedder_.encode(paths), atol=1e-5)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).transform(paths[:3]), vectors[:3], atol=1e-5)
    np.testing.assert_array_equal(clone(model).fit(list(map(Path, paths)), labels).transform(paths), vectors)
    assert list(model.get_feature_names_out()[:2]) == ["embedder0", "embedder1"]


def test_it_comes_before_a_nearest_neighbour_classifier(samples: Samples) -> None:
    paths, labels = (np.asarray(each) for each in samples)
    model: Pipeline = make_pipeline(tiny(), KNeighborsClassifier(1, metric="cosine"))
    odd = np.arange(len(paths)) % 2 == 1
    assert model.fit(paths[odd], labels[odd]).score(paths[~odd], labels[~odd]) > 0.6  # by chance 1/8


def test_a_search_chooses_among_losses(samples: Samples) -> None:
    model = Pipeline([("embed", tiny()), ("nearest", KNeighborsClassifier(1))])
    search = GridSearchCV(model, {"embed__loss": ["proxy-anchor", {"name": "contrastive", "margin": 0.7}]}, cv=2)
    assert search.fit(*samples).best_params_["embed__loss"] in ("proxy-anchor", {"name": "contrastive", "margin": 0.7})


def test_a_run_is_kept_where_the_user_says(samples: Samples, tmp_path: Path) -> None:
    Embedder(embedder=SMALL, schedule=ONE_EPOCH, out=tmp_path / "run").fit(*samples)
    assert (tmp_path / "run" / "best" / "embedder.json").is_file()


def test_mistakes(samples: Samples, tmp_path: Path) -> None:
    paths, labels = samples
    with pytest.raises(UsageError, match=r"loss\.name: unknown value 'pmp'"):
        Embedder(loss="pmp").fit(paths, labels)
    with pytest.raises(ValueError, match="only one class"):
        tiny().fit(paths, ["a"] * len(paths))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        tiny().fit(paths, labels[1:])
    numbers: Any = np.random.default_rng(0).normal(size=(40, 5))
    learned = Embedder(schedule=ONE_EPOCH).fit(numbers, np.arange(40) % 4)
    with pytest.raises(ValueError, match="learned from features; these samples are not"):
        learned.transform(paths)
    with pytest.raises(ValueError, match="learned from images; these samples are not"):
        tiny().fit(paths, labels).transform(numbers)
    (tmp_path / "bad.png").write_text("no picture")
    with pytest.raises(BadImage, match=r"bad\.png"):
        tiny().fit(paths, labels).transform([tmp_path / "bad.png"])


def test_without_scikit_learn_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sklearn.py").write_text("raise ImportError('not here')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    words = [sys.executable, "-c", "import tophit.sklearn"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert "pip install 'tophit[sklearn]'" in done.stderr
