from pathlib import Path

import pytest

from tophit.errors import UsageError
from tophit.recipe import make_recipe, read_recipe, recipe_fields, recipe_names


def test_the_resolved_recipe_reads_back_as_itself(tmp_path: Path) -> None:
    recipe = read_recipe("icons", ["loss.alpha=2", "embedder.size=96"])
    assert (recipe.loss.alpha, recipe.embedder.size, recipe.data.manifest) == (2.0, 96, "icons")
    (tmp_path / "r.yaml").write_text(recipe.to_yaml())
    assert read_recipe(tmp_path / "r.yaml") == recipe


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_ships_is_valid(name: str) -> None:
    assert read_recipe(name, ["data.manifest=somewhere"]).data.manifest == "somewhere"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("los.alpha=2", r"los: unknown key\. Did you mean 'loss'\? Choices: augment, batches"),
        ("loss.alhpa=2", r"loss\.alhpa: unknown key\. Did you mean 'alpha'\? Choices: alpha, margin, name"),
        ("loss.name=proxy-ancor", r"loss\.name: unknown value 'proxy-ancor'\. Did you mean 'proxy-anchor'\?"),
        ("batches.sampler=balancd", r"Did you mean 'balanced'\? Choices: balanced, random"),
        ("embedder.dim=wide", r"embedder\.dim: .*got 'wide'\. Length of the vectors; null:"),
        ("optimizer.head.lr=-1", r"optimizer\.head\.lr: .*greater than or equal to 0, got -1"),
        ("evaluation.metric=r@1", r"evaluation\.metric: There is no metric 'r@1'\. .*recall@K"),
        ("augment.scale=[0.9,0.5]", r"augment\.scale: .*0 < least <= most <= 1"),
        ("data=icons", r"data: must be a section with manifest, .*not 'icons'"),
        ("seed", r"'seed' does not set a field; write FIELD=VALUE, such as loss\.alpha=2"),
        ("seed.x=1", r"seed: Input should be a valid integer"),
    ],
)
def test_a_mistake_gets_its_path_and_what_would_be_right(override: str, message: str) -> None:
    start = [] if override.startswith("data") else ["data.manifest=x"]
    with pytest.raises(UsageError, match=message):
        read_recipe(None, [*start, override])


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        make_recipe({"loss": {"alpa": 1}, "embedder": {"pooling": "maximum"}})
    text = str(caught.value)
    assert "loss.alpa" in text
    assert "embedder.pooling" in text
    assert "data.manifest: needs a value. A manifest" in text


def test_overrides_are_yaml_values_and_partial_sections_keep_their_defaults() -> None:
    recipe = read_recipe(
        None,
        [
            "data.manifest=x",
            "optimizer.head.lr=1e-4",
            "augment.scale=[0.5, 1]",
            "augment.flip=no",
            "embedder.size=null",
        ],
    )
    assert recipe.optimizer.head.lr == 1e-4
    assert recipe.optimizer.head.weight_decay == 1e-4
    assert (recipe.augment.scale, recipe.augment.flip, recipe.embedder.size) == ((0.5, 1.0), False, None)


@pytest.mark.parametrize("name", ["2024", "007", "yes", "a: b", "[photos]", "nan", "# one"])
def test_data_is_a_path_whatever_it_looks_like(name: str) -> None:
    assert read_recipe("head", data=name).data.manifest == name
    assert read_recipe("icons", data=name).data.manifest == name


def test_files_that_are_no_recipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no recipe file 'nothing', nor a built-in recipe of that name \(dinov2/small, head, icons"
    ):
        read_recipe("nothing")
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    with pytest.raises(UsageError, match="must hold sections"):
        read_recipe(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(UsageError, match="is not YAML"):
        read_recipe(tmp_path / "broken.yaml")


def test_every_field_is_documented() -> None:
    fields = list(recipe_fields())
    assert len(fields) > 30
    assert all(description.endswith(".") for _, _, _, description in fields)
    assert ("loss.alpha", "float", "32.0") in [field[:3] for field in fields]
