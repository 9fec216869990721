"""A paper's numbers stand beside a run's only on the paper's data, and every other difference is named."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.reference import set_trees
from typer.testing import CliRunner

from tophit import training
from tophit.cli import app
from tophit.data.manifest import write_manifest
from tophit.data.sets import benchmark, read_set
from tophit.embedding.rows import embed_rows
from tophit.evaluation import class_spread, clustering_metrics, retrieval_metrics
from tophit.models import load
from tophit.recipe import read_recipe, recipe_names, shipped_for_paper, variant_names
from tophit.recipe.recipe_files import name_of_row

TINY = [
    "embedder.backbone=small",
    "embedder.weights=random",
    "embedder.size=32",
    "schedule.epochs=1",
    "batches.classes=2",
    "batches.per_class=2",
    "log=[]",
]
OF_PAPERS = [name for name in [*recipe_names(), *variant_names()] if "/" in name]


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a set's tiny tree, and let its counts be the published ones."""
    known, roots = benchmark.set_named, dict[str, Path]()

    def named(name: str) -> benchmark.BenchmarkSet:
        chosen = known(name)
        counts = benchmark.count_parts(chosen.counts, chosen.read(roots[name], False))
        return replace(chosen, counts=tuple(counts))

    def make(name: str) -> Path:
        roots[name] = set_trees.TREES[name](tmp_path / "sets" / name)
        return roots[name]

    monkeypatch.setattr(benchmark, "set_named", named)
    return make


def run(name: str, data: Path, folder: Path, *settings: str) -> dict[str, Any]:
    return training.train(read_recipe(name, [*TINY, *settings], data=str(data)), folder)


def test_on_a_users_own_images_the_papers_numbers_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    birds = read_set("cub200", set_trees.cub200(tmp_path / "birds"), partial=True)
    fruit = tmp_path / "fruit.csv"
    write_manifest(birds, fruit)  # any manifest that does not have the set's counts
    settings = [word for setting in TINY for word in ("--set", setting)]
    command = ["train", "topk/cub200", "--data", str(fruit), "--run", str(tmp_path / "run"), *settings]
    printed = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert "61.07" not in printed
    assert "The paper's numbers are left out: the data are not the whole set cub200" in printed


def test_on_the_whole_set_every_difference_from_the_papers_set_up_is_named(
    whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = run("topk/cub200", whole("cub200"), tmp_path / "run")["paper"]
    assert found["recipe"] == "topk/cub200"
    assert found["differences"] == {
        "embedder.backbone": {"ours": "small", "paper": "densenet201"},
        "embedder.weights": {"ours": "random", "paper": "pretrained"},
        "embedder.size": {"ours": 32, "paper": 227},
        "batches.classes": {"ours": 2, "paper": 6},
        "batches.per_class": {"ours": 2, "paper": 11},
        "schedule.epochs": {"ours": 1, "paper": 80},
    }
    printed = " ".join(CliRunner().invoke(app, ["train", "--resume", str(tmp_path / "run")]).stdout.split())
    assert "61.07" in printed
    assert (
        "Differs from the paper's set-up: embedder.backbone small instead of densenet201, embedder.weights" in printed
    )
    assert "schedule.epochs 1 instead of 80" in printed


def test_another_loss_is_one_difference(whole: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: topk/cub200\nloss: smooth-ap\n")
    found = run(str(path), whole("cub200"), tmp_path / "run")["paper"]
    assert {name for name in found["differences"] if name.startswith("loss")} == {"loss.name"}
    assert found["differences"]["loss.name"] == {"ours": "smooth-ap", "paper": "topk-precision"}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("data.partial=true", "not the whole set cub200"),
        ("data.merge_classes=2", "data.merge_classes is 2 instead of 1"),
        ("data.validation_share=0.5", "data.validation_share is 0.5 instead of 0"),
    ],
)
def test_other_parts_of_the_set_are_other_data(
    setting: str, reason: str, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    result = run("topk/cub200", whole("cub200"), tmp_path / "run", setting)
    assert "paper" not in result
    assert reason in result["paper_left_out"]


def test_another_set_is_other_data(whole: Callable[[str], Path], tmp_path: Path) -> None:
    result = run("topk/cub200", whole("cars196"), tmp_path / "run", "data.set=cars196")
    assert "not the whole set cub200" in result["paper_left_out"]


def test_a_manifest_with_the_sets_counts_is_the_set(whole: Callable[[str], Path], tmp_path: Path) -> None:
    birds, table = read_set("cub200", whole("cub200")), tmp_path / "birds.csv"
    write_manifest(birds, table)
    assert "paper" in run("topk/cub200", table, tmp_path / "run")
    write_manifest(replace(birds, rows=birds.rows[1:]), table)
    assert "paper" not in run("topk/cub200", table, tmp_path / "other")


def test_every_row_of_a_papers_table_leads_to_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "SafeLoader", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for name in OF_PAPERS:
        paper = read_recipe(name, data="x").paper
        older = dict(list(paper.metrics.items())[:3])  # earlier versions named fewer columns
        for metrics in (paper.metrics, older) if older else ():
            assert name_of_row(paper.title, paper.table, paper.row, metrics) == name
    recipe = read_recipe("thsg/sop-resnet50", data="x")
    assert shipped_for_paper(recipe) == ("thsg/sop-resnet50", recipe)


def test_a_run_measures_every_column_of_its_papers_table(whole: Callable[[str], Path], tmp_path: Path) -> None:
    root = whole("sop")
    result = run("pnp/sop-112", root, tmp_path / "run")
    rows = read_set("sop", root).where("test").rows
    vectors, labels = embed_rows(load(tmp_path / "run"), rows).vectors, [row.label for row in rows]
    spread, clusters = class_spread(vectors, labels), clustering_metrics(vectors, labels)
    ranks = retrieval_metrics(vectors, labels, recall_at=(1, 10, 100, 1000))
    expected = {
        **{f"recall@{k}": 100 * ranks[f"recall@{k}"] for k in (1, 10, 100, 1000)},
        "dists@intra": spread["intra"],  # cosine distances, as the paper prints them
        "dists@inter": spread["inter"],
        "NMI": 100 * clusters["NMI"],
    }
    compared = result["paper"]["metrics"]
    assert {name: values["ours"] for name, values in compared.items()} == pytest.approx(expected)
    assert compared["dists@inter"]["paper"] == 0.946
    printed = CliRunner().invoke(app, ["train", "--resume", str(tmp_path / "run")], env={"COLUMNS": "200"}).stdout
    assert re.search(rf"dists@inter +│ {spread['inter']:.3f} ", printed)  # among the run's metrics
    assert re.search(rf"dists@inter \(not %\) +│ {spread['inter']:.3f} +│ 0.946 ", printed)  # beside the paper's
    command = ["evaluate", str(tmp_path / "run"), "--data", str(root)]
    evaluated = " ".join(
        CliRunner().invoke(app, command, catch_exceptions=False, env={"COLUMNS": "200"}).stdout.split()
    )
    assert all(
        word in evaluated for word in ("recall@1000", "NMI", f"of class means to each other {spread['inter']:.3f}")
    )


def test_a_papers_clusters_need_no_further_field(whole: Callable[[str], Path], tmp_path: Path) -> None:
    result = run("pnp/vehicleid-112", whole("vehicleid"), tmp_path / "run")
    assert all(values["ours"] is not None for values in result["paper"]["metrics"].values())
    assert {"NMI", "dists@intra", "small/recall@5"} <= result["paper"]["metrics"].keys()


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("profs/sop", {"recall@10": 88.8, "recall@100": 95.0, "recall@1000": 98.3}),
        ("profs/sop-triplet-baseline", {"recall@10": 81.4, "recall@100": 91.7, "recall@1000": 97.4}),
        ("profs/cub200-angular-hncm", {"recall@2": 68.1, "recall@4": 78.8, "recall@8": 87.3}),
        ("profs/cars196-n-pair-profs", {"recall@2": 85.9, "recall@4": 91.6, "recall@8": 95.2}),
        ("thsg/sop-resnet50", {"recall@10": 88.7, "recall@100": 95.2, "NMI": 89.6, "F1": 34.7}),
        ("thsg/cars196-resnet50-triplet", {"recall@2": 78.2, "recall@8": 91.2, "NMI": 60.1, "F1": 27.2}),
        ("pnp/sop-112-o", {"dists@intra": 0.318, "dists@inter": 0.793, "NMI": 90.0}),
        ("pnp/vehicleid-112-ib", {"dists@intra": 0.144, "dists@inter": 0.674, "NMI": 90.6}),
    ],
)
def test_recipes_name_the_columns_of_their_papers_tables(name: str, numbers: dict[str, float]) -> None:
    assert numbers.items() <= read_recipe(name, data="x").paper.metrics.items()


def test_a_recipe_of_an_earlier_run_keeps_its_protocol(tmp_path: Path) -> None:
    fields = yaml.safe_load(read_recipe("pnp/vehicleid", data="x").to_yaml())
    del fields["evaluation"]["protocol"]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(fields))
    older = read_recipe(tmp_path / "recipe.yaml")
    assert older.evaluation.protocol == "drawn-galleries"
