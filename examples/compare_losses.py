"""Which loss suits these images? The same budget for each, two seeds, one look at the test classes."""

import tophit

comparison = tophit.compare(
    out="runs/comparison",
    plan={
        "data": "photos/",
        "embedder": {"trainable": "head", "dim": 64},
        "candidates": {
            "proxies": {"change": {"loss": "proxy-anchor"}, "baseline": True},
            "ranking": {"change": {"loss": "pnp"}},
        },
    },
    seeds=2,
    epochs=2,
    workers=1,
)
print(comparison)
# A plan of six losses that ships with Tophit: tophit.compare("photos/", preset="quick", out="runs/quick")
