"""A recipe of one's own, from a file; keyword arguments change it again."""

from pathlib import Path

import tophit

recipe = Path(__file__).with_name("own_recipe.yaml")
for seed in (0, 1):
    result = tophit.train("photos/", recipe, out=f"runs/own-{seed}", seed=seed)
    print(seed, f"recall@1 {100 * result.metrics['recall@1']:.1f}", result.intervals["recall@1"])
