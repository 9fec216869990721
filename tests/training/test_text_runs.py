"""A run on a model with a text tower: what its head keeps of text search, and how evaluation measures that."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.towers import tiny_towers

import tophit
from tophit.data.manifest import ImageRow
from tophit.errors import UsageError
from tophit.progress import View
from tophit.training.text_recall import text_search


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_towers("clip", tmp_path_factory.mktemp("model"))


def trained(model: str, pictures: Path, out: Path, **fields: Any) -> Any:
    embedder = {"backbone": model, "pooling": "joint", "dim": 8, "head_start": "random", **fields.pop("embedder", {})}
    return tophit.train(
        pictures,
        out=out,
        embedder=embedder,
        schedule={"epochs": 12},
        optimizer={"head": {"lr": 0.02}},
        **fields,
    )


def drift(embedder: Any, base: Any, pictures: Path) -> float:
    """How far the cosines of images with class names are from those of the frozen towers."""
    images = sorted(pictures.rglob("*.png"))
    texts = [f"a photo of a class {i}" for i in range(8)]
    now, before = (each.encode(images) @ each.encode_text(texts).T for each in (embedder, base))
    return float(np.sqrt(np.mean((now - before) ** 2)))


def test_the_term_keeps_similarities_with_words(model: str, pictures: Path, tmp_path: Path) -> None:
    base = tophit.load(model)
    notes: list[str] = []

    class Listening(View):
        def note(self, message: str) -> None:
            notes.append(message)

    free = trained(model, pictures, tmp_path / "free", progress=Listening()).embedder
    assert any("text search may become worse" in note for note in notes)
    kept = trained(model, pictures, tmp_path / "kept", words={"weight": 30.0}).embedder
    assert free.takes_words
    assert kept.takes_words
    assert drift(kept, base, pictures) < 0.5 * drift(free, base, pictures)
    assert (tmp_path / "kept" / "best" / "text" / "tower.json").is_file()


@pytest.mark.parametrize(("trainable", "rate"), [("last", 0.03), ("lora", 0.03), ("all", 0.003)])
def test_the_term_keeps_them_while_the_image_tower_learns(
    model: str, pictures: Path, tmp_path: Path, trainable: str, rate: float
) -> None:
    base, rates = tophit.load(model), {"backbone": {"lr": rate}}
    embedder = {"backbone": model, "pooling": "joint", "dim": None, "trainable": trainable}

    def drift_with(weight: float) -> float:
        result = tophit.train(
            pictures,
            out=tmp_path / f"{weight:g}",
            embedder=embedder,
            schedule={"epochs": 4},
            optimizer=rates,
            words={"weight": weight},
            evaluation={"keep": "trained", "test": False, "calibrate": False},
        )
        assert result.embedder.takes_words
        return drift(result.embedder, base, pictures)

    free, kept = drift_with(0.0), drift_with(100.0)
    assert free > 0.01, "training moves images"
    assert kept < 0.6 * free


def test_evaluation_measures_text_search_against_cosines(model: str, pictures: Path, tmp_path: Path) -> None:
    found = tophit.evaluate(model, pictures, split="all", out=tmp_path / "e", against=model)
    embedder = tophit.load(model)
    images = sorted(pictures.rglob("*.png"))
    labels = [path.parent.name for path in images]
    vectors = embedder.encode(images)
    names = sorted(set(labels))
    for k in (1, 5, 10):
        hits = 0
        for name in names:
            order = np.argsort(-(vectors @ embedder.encode_text(f"a photo of a {name}")[0]), kind="stable")
            hits += name in [labels[i] for i in order[:k]]
        assert found.text[f"text recall@{k}"] == pytest.approx(hits / len(names))
    assert found.text_against == found.text
    assert "text recall@5" in repr(found)
    assert json.loads((tmp_path / "e" / "evaluation.json").read_text())["text"] == found.text


def test_models_and_rows_without_words_have_no_text_metrics(model: str, pictures: Path) -> None:
    assert tophit.evaluate(tophit.load("efficientnet-lite0"), pictures).text == {}
    vectors = np.eye(12, dtype=np.float32)[:2]
    rows = [ImageRow(Path("a"), ""), ImageRow(Path("b"), "")]
    assert text_search(tophit.load(model), vectors, rows).metrics == {}


def test_a_run_says_what_search_by_words_lost(model: str, pictures: Path, tmp_path: Path) -> None:
    result = trained(model, pictures, tmp_path / "run", evaluation={"keep": "trained"})
    found = tophit.evaluate(result, pictures, split="all", out=tmp_path / "e")
    before = tophit.evaluate(model, pictures, split="all")
    assert before.text_against == {}
    assert found.text_against == pytest.approx(before.text)
    for name, value in found.text_differences.items():
        assert value.mean == pytest.approx(found.text[name] - before.text[name])
        assert value.low <= value.mean <= value.high
    said = next(sentence for sentence in found.sentences() if sentence.startswith("Search by words"))
    assert f"against the untrained tower: text recall@1 {100 * found.text['text recall@1']:.1f}, " in said
    written = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert written["text_rival"] == "the untrained tower"


def test_texts_of_a_manifest_are_searched_for_instead_of_class_names(model: str, pictures: Path) -> None:
    images = sorted(pictures.rglob("*.png"))[:12]
    texts = [f"thing {number // 2}" for number in range(12)]
    rows = [ImageRow(path, "same", metadata={"text": text}) for path, text in zip(images, texts, strict=True)]
    embedder = tophit.load(model)
    vectors = embedder.encode(images)
    found = text_search(embedder, vectors, rows)
    scores = embedder.encode_text(sorted(set(texts))) @ vectors.T
    hits = [texts[int(row.argmax())] == name for row, name in zip(scores, sorted(set(texts)), strict=True)]
    assert found.metrics["text recall@1"] == pytest.approx(np.mean(hits))
    assert found.texts == sorted(set(texts))


def test_a_recipe_that_can_not_keep_words_is_refused_before_it_begins(
    model: str, pictures: Path, tmp_path: Path
) -> None:
    for wrong, words in (({"embedder": {"pooling": "cls"}}, r"embedder.pooling to joint"),):
        with pytest.raises(UsageError, match=words):
            trained(model, pictures, tmp_path / "x", words={"weight": 1.0}, **wrong)
    with pytest.raises(UsageError, match=r"once, where the class name goes"):
        trained(model, pictures, tmp_path / "x", words={"weight": 1.0, "prompt": "a photo"})
