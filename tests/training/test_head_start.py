"""A head that begins at principal components begins at the backbone's quality."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA, TruncatedSVD
from tests.training.test_keeping import planted, recipe_for
from tests.training.test_train import small_recipe

from tophit.data.manifest import ImageRow, Manifest
from tophit.models import build_embedder
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.training import Run, train
from tophit.training.head_start import begin_head, principal_head, sample_rows


@pytest.fixture
def features() -> np.ndarray:
    generator = np.random.default_rng(0)
    return (generator.normal(size=(60, 12)) * np.linspace(3, 0.5, 12) + 2).astype(np.float32)


def cosines(x: np.ndarray) -> np.ndarray:
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x @ x.T


def outputs(x: np.ndarray, dim: int, labels: list[str] | None = None) -> np.ndarray:
    start = principal_head(x, dim, labels)
    return x @ start.weight.T + start.bias


def test_with_all_components_cosines_are_those_of_the_features(features: np.ndarray) -> None:
    for dim in (12, 20):
        np.testing.assert_allclose(cosines(outputs(features, dim)), cosines(features), atol=1e-5)


def test_components_are_those_of_another_library(features: np.ndarray) -> None:
    expected = TruncatedSVD(5, algorithm="arpack").fit_transform(features.astype(np.float64))
    found = outputs(features, 5)
    scale = np.linalg.norm(found) / np.linalg.norm(expected)
    np.testing.assert_allclose(np.abs(found), np.abs(scale * expected), atol=1e-4)


def test_whitening_within_classes_is_that_of_another_library(features: np.ndarray) -> None:
    classes = np.arange(60) % 12
    labels = [f"class {each}" for each in classes]
    means = np.stack([features[classes == each].mean(axis=0) for each in range(12)])
    within = EmpiricalCovariance(assume_centered=True).fit(features - means[classes]).covariance_ * 60 / 48
    shrunk = within + np.trace(within) / 12 * np.eye(12)
    expected = (features - features.mean(axis=0)) @ np.real(sqrtm(np.linalg.inv(shrunk)))
    np.testing.assert_allclose(cosines(outputs(features, 12, labels)), cosines(expected), atol=1e-4)
    components = PCA(5).fit_transform(expected)
    np.testing.assert_allclose(cosines(outputs(features, 5, labels)), cosines(components), atol=1e-4)


def test_whitening_needs_a_class_of_two_images(features: np.ndarray) -> None:
    each_its_own = principal_head(features, 8, [str(row) for row in range(60)])
    assert not each_its_own.is_whitened
    np.testing.assert_array_equal(each_its_own.weight, principal_head(features, 8).weight)


def test_few_learned_images_stay_nearer_to_their_class_than_by_usual_whitening() -> None:
    generator = np.random.default_rng(0)
    classes = np.repeat(np.arange(20), 4)
    nuisance = 2 * generator.normal(size=(80, 8)) @ generator.normal(size=(8, 200))
    x = generator.normal(size=(20, 200))[classes] + nuisance + 0.5 * generator.normal(size=(80, 200))

    def recall(vectors: np.ndarray) -> float:
        scores = cosines(vectors) - 9 * np.eye(80)
        return float(np.mean(classes[scores.argmax(axis=1)] == classes))

    found = PCA(64).fit(x)
    usual = found.transform(x) / np.sqrt(found.explained_variance_ + found.explained_variance_.sum() / 200)
    assert recall(outputs(x, 64, [str(each) for each in classes])) > 0.9 > 0.7 > recall(usual) > recall(x)


@pytest.mark.parametrize("labels", [None, [str(row % 6) for row in range(60)]])
def test_the_norm_is_that_of_a_random_start(features: np.ndarray, labels: list[str] | None) -> None:
    weight = principal_head(features, 8, labels).weight
    torch.manual_seed(0)
    usual = np.mean([torch.nn.Linear(12, 8).weight.norm().item() for _ in range(200)])
    assert np.linalg.norm(weight) == pytest.approx(usual, rel=0.03)


def test_directions_that_few_features_do_not_span_complete_the_basis() -> None:
    few = np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32)
    start = principal_head(few, 12)
    gram = start.weight @ start.weight.T
    np.testing.assert_allclose(gram, gram[0, 0] * np.eye(12), atol=1e-5)


def test_longer_vectors_than_features_end_with_zeros_that_still_learn(features: np.ndarray) -> None:
    start = principal_head(features, 20)
    assert not start.weight[12:].any()
    assert start.components == 12
    assert start.sentence(20).endswith(
        "12 principal components of the training features; the other 8 dimensions begin at 0."
    )
    embedder = build_embedder("features/12", "pretrained", dim=20)
    begin_head(embedder, features)
    vectors = embedder.embed_features(torch.from_numpy(features))
    (vectors @ torch.ones(20)).sum().backward()
    assert (embedder.head.weight.grad[12:].abs().sum(1) > 0).all()  # type: ignore[union-attr, index]


def test_after_a_layer_norm_the_components_are_those_of_normalised_features(features: np.ndarray) -> None:
    embedder = build_embedder("features/12", "pretrained", dim=12, layer_norm=True)
    begin_head(embedder, features)
    normed = features - features.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(cosines(embedder.embed_arrays(features)), cosines(normed), atol=1e-4)


def test_an_embedder_without_a_head_has_no_start(features: np.ndarray) -> None:
    assert begin_head(build_embedder("features/12", "pretrained"), features) is None


def test_a_run_begins_at_the_backbones_quality(tmp_path: Path) -> None:
    said: list[str] = []

    class Listening(View):
        def note(self, message: str) -> None:
            said.append(message)

    recipe = recipe_for(planted(tmp_path / "x.npz", hurts=False), schedule={"epochs": 1})
    train(recipe, tmp_path / "run", Listening())
    assert any("The head begins at 16 principal components" in message for message in said)
    values = Run(tmp_path / "run").result()["kept"]["values"]  # type: ignore[index]
    assert values["start"] >= values["backbone"] - 1e-6


def test_where_images_are_trained_a_sample_gives_the_components(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        pictures, embedder={"head_start": "pca"}, optimizer={"head": {"lr": 0}, "backbone": {"lr": 0}}
    )
    train(recipe, tmp_path / "run")
    state = Run(tmp_path / "run").load_checkpoint()
    assert state is not None
    weight = state["embedder"]["head.weight"]
    gram = weight @ weight.T
    torch.testing.assert_close(gram, gram.diagonal().mean() * torch.eye(16), atol=1e-5, rtol=0)


def test_a_sample_has_every_class_before_it_has_one_twice() -> None:
    rows = tuple(ImageRow(Path("x"), str(label), "train") for label in [0] * 50 + [1] * 3 + [2] * 2)
    manifest = Manifest(rows)
    chosen = sample_rows(manifest, 8, seed=0)
    assert chosen == sorted(set(chosen))
    counts = np.bincount([int(rows[i].label) for i in chosen])
    assert counts.tolist() == [3, 3, 2]
    assert sample_rows(manifest, 8, seed=0) == chosen
    assert sample_rows(manifest, 100, seed=0) == list(range(55))


def test_the_default_is_as_in_the_papers() -> None:
    assert Recipe.model_validate({"data": {"manifest": "x"}}).embedder.head_start == "random"
