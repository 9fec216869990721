"""The papers' recipes: each is read, builds on its base, and takes two steps on a tiny tree in its set's own layout."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.reference import set_trees

from tophit import training
from tophit.data.sets import benchmark
from tophit.errors import UsageError
from tophit.recipe import read_recipe, recipe_names, variant_names
from tophit.recipe.recipe_files import read_file

_PAPERS = ("topk", "pnp", "profs", "mpa", "thsg")
OF_PAPERS = [name for name in recipe_names() if name.partition("/")[0] in _PAPERS]
VARIANTS = [name for name in variant_names() if name.partition("/")[0] in _PAPERS]
UNPRINTED = ("topk/cub200-bn-inception", "pnp/sop-merged-ib", "pnp/vehicleid-merged-ib")  # no numbers in their papers
TINY = [
    "embedder.weights=random",
    "embedder.size=64",
    "schedule.epochs=1",
    "batches.classes=4",
    "batches.per_class=2",
    "batches.repeat_small_classes=false",
    "batches.size=8",
    "log=[]",
]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root, known = tmp_path_factory.mktemp("sets"), benchmark.set_named
    for name, build in set_trees.TREES.items():
        build(root / name, per_class=4, classes=4)
    with pytest.MonkeyPatch.context() as patch:  # the tiny trees are whole
        patch.setattr(benchmark, "set_named", lambda name: replace(known(name), counts=()))
        yield root


@pytest.mark.parametrize("name", OF_PAPERS)
def test_every_recipe_learns_from_its_sets_own_layout(name: str, trees: Path, tmp_path: Path) -> None:
    recipe = read_recipe(name, TINY, data=str(trees / name.split("/")[1]))
    result = training.train(recipe, tmp_path / "run")
    assert result["steps"] >= 2
    compared = result["paper"]["metrics"]
    assert compared.keys() == recipe.paper.metrics.keys()
    assert all(0 <= values["ours"] <= 100 for values in compared.values())
    if recipe.data.set == "vehicleid":
        assert list(result["test_sets"]) == ["small", "medium", "large"]
        ours = 100 * result["test_sets"]["medium"]["recall@1"]
        assert compared["medium/recall@1"] == {"paper": 94.2, "ours": ours}


@pytest.mark.parametrize("name", [*OF_PAPERS, *VARIANTS])
def test_every_recipe_says_its_paper_its_set_and_what_the_paper_leaves_to_no_default(name: str) -> None:
    recipe = read_recipe(name, data="somewhere")
    assert recipe.data.set == name.split("/")[1].split("-")[0]
    assert recipe.paper.title
    assert recipe.data.validation_share == 0  # the papers train on all training classes
    assert recipe.embedder.trainable == "all"
    assert recipe.paper.metrics or name in UNPRINTED


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("topk/cub200", ("densenet201", 64, 227, "topk-precision", 1e-3, 81)),
        ("topk/sop", ("densenet201", 512, 227, "topk-precision", 1e-3, 221)),
        ("pnp/sop", ("resnet50", 512, 224, "pnp", 1e-5, 400)),
        ("pnp/sop-smooth-ap", ("resnet50", 512, 224, "smooth-ap", 1e-5, 400)),
        ("profs/cub200", ("googlenet", 512, 224, "margin", 1e-5, 100)),
        ("profs/sop-n-pair-profs", ("googlenet", 512, 224, "n-pair", 1e-4, 100)),
        ("mpa/sop", ("bn-inception", 512, 224, "multi-proxy-anchor", 1e-4, 100)),
        ("thsg/cars196-128", ("googlenet", 128, 227, "triplet", 1e-5, 150)),
    ],
)
def test_set_ups_are_those_of_the_papers(name: str, values: tuple) -> None:
    r = read_recipe(name, data="x")
    found = (r.embedder.backbone, r.embedder.dim, r.embedder.size, r.loss.name, r.optimizer.backbone.lr)
    assert found == values[:5]
    assert r.schedule.epochs in (values[5], values[5] - 1)


def test_batches_are_those_of_the_papers() -> None:
    def size(name: str) -> int:
        batches = read_recipe(name, data="x").batches
        return batches.size if batches.sampler == "random" else batches.classes * batches.per_class

    sizes = {name: size(name) for name in OF_PAPERS}
    assert [sizes[f"mpa/{s}"] for s in ("cub200", "cars196", "sop")] == [180, 64, 32]
    assert [sizes[f"pnp/{s}"] for s in ("sop", "vehicleid", "inaturalist")] == [384, 384, 224]
    assert size("pnp/sop-112") == 112
    assert {sizes[f"{paper}/{s}"] for paper in ("profs", "thsg") for s in ("cub200", "cars196", "sop")} == {128}


def test_a_variant_has_the_parts_it_names_and_its_own_numbers() -> None:
    plain, mined = read_recipe("profs/cub200-triplet-baseline", data="x"), read_recipe("profs/cub200", data="x")
    assert (plain.method.name, plain.miner.name, plain.loss.name) == ("plain", "balanced-hard", "triplet")
    assert (mined.method.name, mined.miner.name, mined.loss.name) == ("projection", "none", "margin")
    recalls = {"recall@1": 56.8, "recall@2": 68.7, "recall@4": 78.6, "recall@8": 86.5}
    assert plain.paper.metrics == {"NMI": 63.1, "F1": 30.7, **recalls}
    assert read_recipe("topk/cub200-bn-inception", data="x").paper.metrics == {}


def test_a_users_file_builds_on_a_shipped_recipe_or_on_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: pnp/sop\nloss: smooth-ap\nschedule: {epochs: 3}\n")
    (tmp_path / "more.yaml").write_text("base: mine.yaml\nschedule: {gamma: 0.5}\n")
    recipe = read_recipe(tmp_path / "more.yaml", data="x")
    assert (recipe.loss.name, recipe.schedule.epochs, recipe.schedule.gamma) == ("smooth-ap", 3, 0.5)
    assert recipe.embedder.backbone == "resnet50"
    (tmp_path / "round.yaml").write_text("base: round.yaml\n")
    with pytest.raises(UsageError, match=r"base: the chain of bases is circular"):
        read_file(tmp_path / "round.yaml")
    (tmp_path / "lost.yaml").write_text("base: pnp/cub\n")
    with pytest.raises(UsageError, match=r"no recipe 'pnp/cub'. Choices: dinov2/small, head, icons"):
        read_recipe(tmp_path / "lost.yaml")


def test_a_metric_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"paper\.metrics: .*There is no metric 'recal@1'"):
        read_recipe("pnp/sop", ["paper.metrics={recal@1: 3}"], data="x")


@pytest.mark.parametrize("name", OF_PAPERS)
def test_the_docs_table_has_the_recipes_numbers(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "recipes.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
    recipe = read_recipe(name, data="x")
    assert all(f"{metric} {value:g}" in line for metric, value in recipe.paper.metrics.items())
    assert f"{recipe.embedder.backbone}, {recipe.embedder.dim}" in line
