"""The untrained backbone beside the candidates: whether training helps at all."""

import time

import numpy as np

from tophit.comparing.plan import Plan, any_recipe
from tophit.comparing.store import UNTRAINED, Store
from tophit.embedding.rows import embed_rows
from tophit.errors import TophitError
from tophit.progress import View
from tophit.training.building import make_embedder, with_given_features
from tophit.training.evaluate import metrics_of_vectors
from tophit.training.run_rows import rows_of


def measure_untrained(plan: Plan, store: Store, view: View) -> None:
    """Measure the backbone as it is before training on the test classes, and store it like a candidate's runs.

    It has no seed, so every seed gets the same values. Random weights know nothing and are left out.
    """
    waiting = [seed for seed in range(plan.budget.seeds) if not store.result_path(UNTRAINED, seed).is_file()]
    recipe = with_given_features(any_recipe(plan))
    if not waiting or UNTRAINED in plan.candidates or recipe.embedder.weights == "random":
        return
    start = time.monotonic()
    rows = rows_of(recipe).test.rows
    embedded = embed_rows(make_embedder(recipe, head=False), rows, view.track("Untrained"))
    used = [rows[number] for number in embedded.rows]
    try:
        found = metrics_of_vectors(embedded.vectors, used, metrics=plan.metrics)
    except TophitError as error:
        view.note(f"The untrained backbone is left out: {error}")
        return
    values = {metric: found.per_query[metric].astype("float32") for metric in plan.metrics}
    values["labels"] = np.asarray([row.label for row in used if row.role != "gallery"])
    for seed in waiting:
        result = {
            "candidate": UNTRAINED,
            "seed": seed,
            "settings": {},
            "metrics": dict(found),
            "unreadable": len(embedded.bad),
            "seconds": round(time.monotonic() - start, 3),
            "processor_seconds": 0.0,
            "peak_memory": 0,
        }
        store.write_result(UNTRAINED, seed, result, values)
