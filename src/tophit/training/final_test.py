"""The last look: what a run kept, and the backbone it began with, measured on the test classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tophit.calibrating import drop_stale
from tophit.data.manifest import ImageRow
from tophit.embedding.rows import EmbeddedRows
from tophit.errors import TophitError
from tophit.evaluation import paired_difference
from tophit.methods import Stepper
from tophit.models.embedder import Embedder
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.training.calibrate_rows import calibrate_vectors
from tophit.training.devices import on_first
from tophit.training.evaluate import (
    cluster_metrics,
    metrics_of_vectors,
    named_set_metrics,
    spread_metrics,
)
from tophit.training.paper import beside_paper
from tophit.training.result import gain_fields
from tophit.training.row_relevance import usual_metrics
from tophit.training.run import Run
from tophit.training.run_rows import RunRows, digest_of_rows, has_pairs
from tophit.training.sources import BadImages, shared_embeddings
from tophit.training.wanted import judging_of, wanted_clusters, wanted_metrics, wanted_of_sets


@dataclass
class FinalTest:
    """Measures embedders on the test classes of a run; what it returns are fields of the run's result."""

    run: Run
    recipe: Recipe
    rows: RunRows
    stepper: Stepper
    bad: BadImages
    view: View
    per_query: dict[str, tuple[Any, list[str]]] = field(default_factory=dict)
    """By name: every test query's metrics, and the queries' labels."""
    kept: EmbeddedRows | None = None
    """The test rows, embedded by what was kept."""

    def after(self, embedder: Embedder) -> dict[str, Any]:
        """Measure what was kept: all metrics, clusters, named test sets, beside the paper's numbers."""
        return self._measured(embedder, "test", "intervals")

    def before(self, embedder: Embedder) -> dict[str, Any]:
        """Measure the backbone as it was, and what was gained over it."""
        found = self._measured(embedder, "before", "before_intervals")
        return found | on_first(self.stepper, self._gain)

    def calibrate(self, embedder: Embedder) -> dict[str, Any]:
        """Calibrate what was kept on classes that training did not see, and save that beside it."""
        if not self.recipe.evaluation.calibrate:
            return {}
        learned = set(self.rows.whole.where("train").labels)
        parts: list[tuple[np.ndarray, list[ImageRow]]] = []
        if self.kept is not None:
            parts.append((self.kept.vectors, [self.rows.test.rows[i] for i in self.kept.rows]))
        held = self.rows.validation
        if len(held) and held.kind != "several" and all(row.role == "both" for row in (*held, *self.rows.test)):
            embedded = shared_embeddings(self.stepper, embedder, held.rows)
            parts.append((embedded.vectors, [held.rows[i] for i in embedded.rows]))

        def measure() -> dict[str, Any]:
            rows = [row for _, some in parts for row in some]
            used = [number for number, row in enumerate(rows) if row.label not in learned]
            if not used:
                return {}
            vectors = np.concatenate([vectors for vectors, _ in parts])[used]
            try:
                made = calibrate_vectors(vectors, [rows[i] for i in used], embedder.fingerprint())
            except TophitError as error:
                drop_stale(self.run.best, embedder.fingerprint())
                self.view.note(str(error))
                return {}
            made.save(self.run.best)
            return {"calibration": made.sentences()}

        return on_first(self.stepper, measure)

    def _gain(self) -> dict[str, Any]:
        """Compare what was kept with the untrained backbone on every test query."""
        if not self.per_query:
            return {}
        (after, labels), (before, _) = self.per_query["test"], self.per_query["before"]
        names = dict.fromkeys([self.recipe.evaluation.metric, "recall@1"])
        gain = {name: paired_difference(after[name], before[name], labels) for name in names}
        return gain_fields(gain, len(set(labels)))

    def _measured(self, embedder: Embedder, metrics_name: str, intervals_name: str) -> dict[str, Any]:
        """Measure an embedder on the test classes; return nothing if no class has two images."""
        test = self.rows.test
        if not has_pairs(test) or not self.recipe.evaluation.test:
            return {metrics_name: {}, intervals_name: {}}
        embedded = shared_embeddings(self.stepper, embedder, test.rows, self.view.track("Test"))
        if metrics_name == "test":
            self.kept = embedded
        for row, reason in embedded.bad.items():
            # Once training is done, a bad test image must not lose its result.
            self.bad.add(test.number(row), reason, enforce=False)

        def measure() -> dict[str, Any]:
            vectors, rows = embedded.vectors, [test.rows[i] for i in embedded.rows]
            judging = judging_of(self.recipe)
            names = list(dict.fromkeys([*wanted_metrics(self.recipe), *usual_metrics(rows, judging)]))
            metrics = metrics_of_vectors(vectors, rows, 0.95, names, judging=judging)
            labels = [row.label for row in rows if row.role != "gallery"]
            self.per_query[metrics_name] = (metrics.per_query, labels)
            found: dict[str, Any] = {metrics_name: dict(metrics), intervals_name: metrics.intervals}
            return self._with_details(found, vectors, rows) if metrics_name == "test" else found

        return on_first(self.stepper, measure)

    def _with_details(self, found: dict[str, Any], vectors: np.ndarray, rows: Sequence[ImageRow]) -> dict[str, Any]:
        """Add which rows were measured, clusters, distances, named test sets and the paper's numbers."""
        recipe = self.recipe
        found["test_rows"] = digest_of_rows(rows)
        found["test"] |= cluster_metrics(vectors, rows, wanted_clusters(recipe), recipe.seed)
        found["test"] |= spread_metrics(vectors, rows, recipe.paper.measured)
        protocol = recipe.evaluation.protocol
        found["test_sets"] = named_set_metrics(vectors, rows, protocol, recipe.seed, wanted_of_sets(recipe))
        if found["test_sets"]:
            found["protocol"] = protocol
        found |= beside_paper(recipe, self.rows.whole, found)
        if recipe.evaluation.per_query:
            self.run.write_per_query(*self.per_query["test"])
        return found
