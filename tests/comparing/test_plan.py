from pathlib import Path
from typing import Any

import pytest
import yaml

from tophit.comparing import Store, make_plan, preset_fields, preset_names, read_plan
from tophit.comparing.jobs import jobs_of
from tophit.comparing.plan import recipe_of, slug, trial_recipe
from tophit.errors import UsageError


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "data": "some.csv",
        "embedder": {"dim": 16},
        "common": {"optimizer": {"head": {"lr": 0.01}}},
        "budget": {"seeds": 2, "trials": 2, "epochs": 6},
        "candidates": {
            "a": {"baseline": True, "change": {"loss": "triplet", "batches": {"classes": 4}}},
            "b": {"recipe": "pnp/sop", "search": {"loss.alpha": {"low": 1, "high": 4}}},
        },
    } | changes


def test_a_candidate_has_the_plans_data_embedder_and_budget() -> None:
    plan = make_plan(fields())
    recipe = recipe_of(plan, "b", 3, {"loss.alpha": 2.5})
    assert recipe.seed == 3
    assert (recipe.data.manifest, recipe.data.set) == ("some.csv", None)
    assert (recipe.embedder.dim, recipe.embedder.trainable) == (16, "head")
    assert recipe.schedule.epochs == 6
    assert recipe.evaluation.every == 3
    assert recipe.loss.model_dump()["alpha"] == 2.5
    assert recipe.optimizer.head.lr == 1e-5  # the recipe's own
    assert recipe_of(plan, "a", 0, {}).optimizer.head.lr == 0.01
    assert recipe_of(plan, "a", 0, {}).evaluation.test


def test_a_trial_never_looks_at_the_test_classes_and_has_a_seed_of_its_own() -> None:
    plan = make_plan(fields())
    recipe = trial_recipe(plan, "b", {"loss.alpha": 2.0})
    assert not recipe.evaluation.test
    assert recipe.seed not in range(plan.budget.seeds)
    assert recipe.seed == trial_recipe(plan, "a", {}).seed


def test_jobs_go_round_by_round() -> None:
    order = [(job.kind, job.number, job.name) for job in jobs_of(make_plan(fields()))]
    assert order == [
        ("trial", 0, "b"),
        ("trial", 1, "b"),
        ("seed", 0, "a"),
        ("seed", 0, "b"),
        ("seed", 1, "a"),
        ("seed", 1, "b"),
    ]


def test_a_grid_makes_no_more_trials_than_it_has_points() -> None:
    candidates = {"a": {"search": {"loss.margin": [0.1, 0.2], "loss.alpha": [16.0]}}}
    jobs = list(jobs_of(make_plan(fields(budget={"trials": 5, "seeds": 1}, candidates=candidates))))
    assert [job.kind for job in jobs] == ["trial", "trial", "seed"]


def test_runs_on_all_classes_get_the_epochs_of_the_search_and_hold_nothing_out() -> None:
    budget = {"trials": 2, "seeds": 1, "epochs": 6, "evaluations": 6, "patience": 2, "all_classes": True}
    plan = make_plan(fields(budget=budget))
    trial = trial_recipe(plan, "b", {"loss.alpha": 2.0})
    assert (trial.schedule.epochs, trial.schedule.patience, trial.evaluation.every) == (6, 2, 1)
    assert trial.data.validation_share > 0
    measured = recipe_of(plan, "b", 0, {"loss.alpha": 2.0, "schedule.epochs": 4})
    assert (measured.schedule.epochs, measured.schedule.patience, measured.evaluation.every) == (4, None, 4)
    assert measured.data.validation_share == 0
    kinds = [(job.kind, job.name) for job in jobs_of(plan)]
    assert kinds == [("trial", "a"), ("trial", "b"), ("trial", "b"), ("seed", "a"), ("seed", "b")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"candidates": {"a": {"change": {"loss": "tripel"}}}},
            r"'a'.*\n.*loss.name: unknown value 'tripel'",
        ),
        ({"candidates": {"a": {"recipe": "nothing"}}}, r"candidate 'a'.*no recipe file 'nothing'"),
        ({"candidates": {"a": {"search": {"loss.beta": [1]}}}}, r"loss.beta: unknown key"),
        ({"candidates": {"a": {"search": {"loss.alpha": {"low": 2, "high": 1}}}}}, r"low <= high"),
        ({"candidates": {}}, r"candidates"),
        ({"candidates": {"a b": {}, "a-b": {}}}, r"'a b' and 'a-b' would share a folder"),
        ({"data": {"validation_share": 0.1}}, r"data needs a manifest"),
        ({"metric": "mAP"}, r"metric 'mAP' must be one of metrics"),
        ({"budgets": {}}, r"budgets: unknown key\. Did you mean 'budget'\? Choices: budget, candidates"),
        ({"topk": {}}, r"topk: unknown key\. Choices: budget, candidates"),
        (
            {"candidates": {"topk": {"los": {}}}},
            r"candidates\.topk\.los: unknown key\. .*Choices: baseline, change, note",
        ),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(fields(**changes))


def test_a_plan_is_read_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(fields()))
    plan = read_plan(path)
    assert plan.baselines == ["a"]
    path.write_text(plan.to_yaml())
    assert read_plan(path) == plan
    with pytest.raises(UsageError, match=r"no plan at"):
        read_plan(tmp_path / "other.yaml")


@pytest.mark.parametrize("name", preset_names())
def test_every_candidate_of_a_preset_makes_a_recipe_and_can_be_searched(name: str) -> None:
    plan = make_plan({**preset_fields(name), "data": "some.csv"})
    assert plan.baselines
    assert all("optimizer.head.lr" in candidate.search for candidate in plan.candidates.values())
    assert (
        len({slug(each) for each in plan.candidates})
        == len(plan.candidates)
        == {"objectives": 32, "papers": 43, "quick": 6}[name]
    )
    with pytest.raises(UsageError, match=r"no preset 'x'; choices: objectives, papers, quick"):
        preset_fields("x")


def test_a_folder_goes_on_only_with_what_its_runs_were_made_by(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin(make_plan(fields()))
    store.begin(make_plan(fields(budget={"seeds": 9, "trials": 2, "epochs": 6}, title="more seeds")))
    assert store.plan().budget.seeds == 9
    for changes in (
        {"budget": {"seeds": 2, "trials": 2, "epochs": 7}},
        {"data": "other.csv"},
        {"candidates": {"a": {"change": {"loss": "margin"}}}},
    ):
        with pytest.raises(UsageError, match=r"name another folder"):
            store.begin(make_plan(fields(**changes)))
