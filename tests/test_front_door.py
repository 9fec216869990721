"""The front door: what ``import tophit`` offers, and what its results look like."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import tophit
from tophit.api import RecipeFields
from tophit.errors import TophitError, UsageError
from tophit.recipe import Recipe
from tophit.training import TrainingResult

SMALL: dict[str, Any] = {"backbone": "small", "weights": "random", "size": 32}
TINY: dict[str, Any] = {"embedder": SMALL, "schedule": {"epochs": 1}, "log": []}


@pytest.fixture(scope="module")
def result(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return tophit.train(pictures, loss="pnp", out=tmp_path_factory.mktemp("runs") / "a", **TINY)


@pytest.mark.parametrize("code", ["import tophit", "import tophit; tophit.train; tophit.compare; tophit.report"])
def test_the_door_opens_without_torch(code: str) -> None:
    heavy = "{'torch', 'numpy', 'faiss', 'pydantic', 'sklearn'}"
    code += f"; import sys; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_that_is_offered_can_be_had_and_nothing_else() -> None:
    for name in tophit.__all__:
        assert getattr(tophit, name) is not None
        assert name in dir(tophit)
    with pytest.raises(AttributeError, match="module 'tophit' has no attribute 'trian'"):
        tophit.trian  # noqa: B018  # type: ignore[attr-defined]
    for name in ("tophit.comparing.comparison", "tophit.reporting.make"):
        import_module(name)
    assert callable(tophit.compare)  # not hidden by a package of the same name
    assert callable(tophit.report)
    assert tophit.losses.PNPLoss().variant == "Dq"


def test_training_returns_metrics_the_gain_and_the_embedder(
    result: TrainingResult, pictures: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert set(result.metrics) >= {"recall@1", "MAP@R"}
    assert result.intervals["recall@1"][0] <= result.metrics["recall@1"] <= result.intervals["recall@1"][1]
    assert result.embedder.encode([next(pictures.rglob("*.png"))]).shape == (1, 512)
    assert (result.folder / "result.json").is_file()
    assert tophit.resume(result.folder).metrics == result.metrics
    assert capfd.readouterr() == ("", "")
    assert str(result.folder / "best") in repr(result)
    assert "recall@1" in repr(result)
    assert f"{100 * result.metrics['MAP@R']:.1f} ±" in repr(result)
    assert "<table>" in result._repr_html_()


def test_in_a_notebook_a_repr_is_text_and_shows_nothing_by_itself(
    result: TrainingResult, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = repr(result)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(result) == expected
    assert capfd.readouterr().out == ""


def test_keywords_mirror_the_recipe_and_suit_the_batches(result: TrainingResult) -> None:
    recipe = Recipe.model_validate(yaml.safe_load((result.folder / "recipe.yaml").read_text()))
    assert recipe.loss.name == "pnp"
    assert recipe.batches.sampler == "balanced"  # as on the command line: the loss compares images of one class
    assert recipe.embedder.size == 32
    assert recipe.embedder.dim == 512  # of the recipe head
    assert set(Recipe.model_fields) - {"data"} == set(RecipeFields.__annotations__)


@pytest.mark.parametrize("kind", ["dictionary", "file", "based on a built-in one"])
def test_a_recipe_may_be_a_dictionary_or_a_file(kind: str, pictures: Path, tmp_path: Path) -> None:
    fields = {**TINY, "loss": "contrastive", "data": {"manifest": str(pictures), "test_share": 0.25}}
    recipe: Any = {**fields, "base": "head"} if kind == "based on a built-in one" else fields
    if kind == "file":
        recipe = tmp_path / "mine.yaml"
        recipe.write_text(yaml.safe_dump(fields))
    done = tophit.train(recipe=recipe, out=tmp_path / "run", loss={"margin": 0.5})
    used = yaml.safe_load((done.folder / "recipe.yaml").read_text())
    assert used["loss"]["name"] == "contrastive"
    assert used["loss"]["margin"] == 0.5
    assert used["data"]["test_share"] == 0.25
    assert used["embedder"]["dim"] == (512 if kind == "based on a built-in one" else 128)


@pytest.mark.parametrize(
    ("wrong", "same"),
    [
        ({"los": "pnp"}, ["--set", "los=pnp"]),
        ({"loss": "pmp"}, ["--set", "loss=pmp"]),
        ({"loss": {"name": "pnp", "alhpa": 2}}, ["--set", "loss.name=pnp", "--set", "loss.alhpa=2"]),
        ({"embedder": {"trainable": "lats"}}, ["--set", "embedder.trainable=lats"]),
        ({"recipe": "haed"}, None),
        ({"data": "nowhere"}, None),
    ],
)
def test_mistakes_get_the_sentence_of_the_command_line(
    wrong: dict[str, Any], same: list[str] | None, tmp_path: Path
) -> None:
    from tophit.cli import app

    given = {"data": tmp_path, "recipe": "head", **wrong}
    with pytest.raises(UsageError) as of_python:
        tophit.train(out=tmp_path / "run", **given)
    words = ["train", str(given["recipe"]), "--data", str(given["data"]), "--run", str(tmp_path / "run"), *(same or [])]
    with pytest.raises(UsageError) as of_command:
        app(words, standalone_mode=False)
    assert str(of_python.value) == str(of_command.value)
    assert not (tmp_path / "run").exists()


def test_evaluation_by_result_folder_or_embedder(result: TrainingResult, pictures: Path, tmp_path: Path) -> None:
    found = tophit.evaluate(result, data=pictures, against="small", metrics=["recall@3"], out=tmp_path / "evaluation")
    assert found.metrics["recall@1"] == pytest.approx(result.metrics["recall@1"])
    assert "recall@3" in found.metrics
    assert found.differences["recall@1"].low <= found.differences["recall@1"].high
    assert (tmp_path / "evaluation" / "per_query.parquet").is_file()
    assert "recall@1" in repr(found)
    assert len(repr(found)) < 5000  # not every row of the data
    page = found._repr_html_()
    assert page.count("<table>") == 2
    assert "data:image/png;base64," in page
    by_folder = tophit.evaluate(result.folder)
    assert by_folder.metrics == tophit.evaluate(str(result.folder)).metrics
    assert len(tophit.evaluate(result.embedder, pictures, split="all").queries) == 48
    with pytest.raises(UsageError, match="Name the data"):
        tophit.evaluate(result.embedder)


def test_embeddings_in_memory_and_on_disk_are_the_same(result: TrainingResult, pictures: Path, tmp_path: Path) -> None:
    found = tophit.embed(pictures, result)
    assert found.vectors.shape == (48, 512)
    assert found.labels[0] == "class 0"
    kept = tophit.embed(pictures, result.folder, out=tmp_path / "vectors", batch=16)
    assert kept.paths == found.paths
    assert kept.labels == found.labels
    np.testing.assert_allclose(kept.vectors, found.vectors, atol=1e-5)
    assert repr(found) == "Embeddings: 48 vectors of 8 labels, 512 numbers each"
    assert "<svg" in found._repr_html_()
    with pytest.raises(UsageError, match="not to a file"):
        tophit.embed(pictures, result, out=tmp_path / "vectors.npz")


def test_what_cant_be_read_is_listed(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(pictures / "class 0")
    (tmp_path / "bad.png").write_text("no picture")
    found = tophit.embed(tmp_path, "small")
    assert list(found.unreadable) == [str(tmp_path / "bad.png")]
    assert "1 images could not be read" in repr(found)


def test_an_index_is_made_searched_and_opened_again(result: TrainingResult, pictures: Path, tmp_path: Path) -> None:
    picture = pictures / "class 3" / "2.png"
    with tophit.index(pictures, result, out=tmp_path / "index") as catalogue:
        (hits,) = catalogue.search([picture], k=3)
    assert hits[0].metadata["path"] == str(picture)
    with tophit.open_catalogue(tmp_path / "index") as again:
        assert [hit.id for hit in again.search([picture], k=3)[0]] == [hit.id for hit in hits]
        assert isinstance(again.index, tophit.Index)


def test_a_report_and_a_plan(result: TrainingResult, pictures: Path, tmp_path: Path) -> None:
    written = tophit.report(result, out=tmp_path / "page.html")
    assert written.page.stat().st_size > 10_000
    assert repr(written).startswith(written.verdict)
    assert 'href="file://' in written._repr_html_()
    with pytest.raises(UsageError, match="There is no run in"):
        tophit.report(tmp_path)
    advice = tophit.plan(pictures, **TINY)
    assert advice.backbone == "small"
    assert advice.command in repr(advice)
    assert "<table>" in advice._repr_html_()


def test_a_comparison_from_a_dictionary(toy_data: str, tmp_path: Path) -> None:
    candidates = {"pairs": {"change": {"loss": "contrastive"}}}
    plan = {"data": toy_data, "candidates": candidates, "budget": {"epochs": 1}}
    found = tophit.compare(plan=plan, out=tmp_path / "c", seeds=1, workers=1)
    assert {row.name for row in found.rows} >= {"pairs"}
    assert found.recommendation in repr(found)
    assert "<table>" in found._repr_html_()
    again = tophit.compare(plan=tmp_path / "c", train=False)
    assert again.rows == found.rows
    assert found.recommendation in repr(tophit.report(tmp_path / "c"))
    with pytest.raises(UsageError, match="Name a plan"):
        tophit.compare(toy_data, out=tmp_path / "d")


def test_progress_prints_only_when_asked(pictures: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tophit.train(pictures, out=tmp_path / "run", progress=True, loss="pnp", **TINY)
    assert "Batches are balanced" in capfd.readouterr().out


def test_a_run_is_not_written_over(result: TrainingResult, pictures: Path) -> None:
    with pytest.raises(TophitError, match="already holds a run"):
        tophit.train(pictures, out=result.folder, **TINY)
