"""The five papers' claims in three regimes: a plan of runs, their results as small files, and the page made of them."""
