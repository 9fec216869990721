"""The untrained backbone beside the candidates, and the recipe of the winner."""

from pathlib import Path

import numpy as np
from tests.reference.comparisons import toy_plan

from tophit.comparing import Store
from tophit.comparing.comparison import run_comparison
from tophit.comparing.outputs import to_markdown
from tophit.comparing.store import UNTRAINED
from tophit.evaluation import retrieval_metrics
from tophit.recipe import read_recipe
from tophit.training import train
from tophit.training.run_rows import rows_of


def test_a_comparison_measures_the_untrained_backbone_and_keeps_its_winner(tmp_path: Path, toy_data: str) -> None:
    plan, store = toy_plan(toy_data, seeds=2, epochs=1), Store(tmp_path / "comparison")
    store.begin(plan)
    found = run_comparison(store, workers=1)
    (untrained,) = [row for row in found.rows if row.name == UNTRAINED]
    recipe = read_recipe(None, ["data.validation_share=0.3"], toy_data)
    test = [int(row.metadata["feature_row"]) for row in rows_of(recipe).test]
    with np.load(toy_data) as toy:
        expected = retrieval_metrics(toy["features"][test], toy["labels"][test])
    assert untrained.metrics["recall@1"].mean == np.float32(expected["recall@1"])
    assert untrained.baseline
    assert found.best_baseline == found.winner == UNTRAINED  # one epoch on a few classes only does harm
    assert found.recommendation.startswith("Stay with untrained backbone, a baseline")
    assert found.command == "search the features as they are; nothing needs training"
    assert found.command in to_markdown(found)
    assert not store.winner_path.exists()


def test_the_kept_recipe_trains_the_winner(tmp_path: Path, toy_data: str) -> None:
    """Against random weights nothing is measured untrained, and the winner's recipe gives its first seed's result."""
    embedder = {"dim": 8, "weights": "random"}
    plan, store = toy_plan(toy_data, seeds=1, epochs=1, embedder=embedder), Store(tmp_path / "comparison")
    store.begin(plan)
    found = run_comparison(store, workers=1)
    assert UNTRAINED not in [row.name for row in found.rows]
    assert found.winner in plan.candidates
    assert found.command == f"tophit train {store.winner_path} --run runs/NAME"
    again = train(read_recipe(store.winner_path), tmp_path / "run")
    kept = store.result(found.winner, 0)
    assert kept is not None
    assert again["test"]["recall@1"] == kept["metrics"]["recall@1"]
