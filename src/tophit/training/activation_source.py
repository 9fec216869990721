"""Training from a cut: batches are cached activations of the frozen first stages, in one of several views."""

import numpy as np
import torch

from tophit.data.manifest import Manifest
from tophit.embedding.activations import Wanted, as_input, cached_activations
from tophit.embedding.rows import EmbeddedRows
from tophit.images.views import Augmentation
from tophit.methods import Stepper
from tophit.models.cut import check_stages, run_tail
from tophit.models.embedder import Embedder
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.training.learning import frozen_count
from tophit.training.sources import BadImages, CachedSource, MakeSampler, is_stream

_BATCH = 64  # images of the validation rows at a time


class ActivationSource(CachedSource):
    """Cached activations: only the stages after the cut run, forward and backward.

    Each epoch shows another view of an image; after ``augment.views`` epochs all have been shown equally often.
    """

    def __init__(
        self,
        recipe: Recipe,
        embedder: Embedder,
        train: Manifest,
        validation: Manifest,
        bad: BadImages,
        view: View,
        stepper: Stepper,
        make_sampler: MakeSampler,
        takes_paths: bool = False,
    ) -> None:
        check_stages(embedder)
        self.frozen = frozen_count(recipe, embedder)
        self.activations, self.validation = cached_activations(
            embedder,
            self.frozen,
            [Wanted(train.rows, recipe.augment.views), Wanted(validation.rows)],
            Augmentation(recipe.seed, **recipe.augment.of_views()),
            precision=recipe.data.activations,
            most_gb=recipe.data.activations_gb,
            workers=recipe.data.workers,
            view=view,
        )
        for row, reason in self.activations.bad.items():
            bad.add(train.number(row), reason)
        super().__init__(embedder, train, self.activations.rows, stepper, make_sampler, takes_paths)
        random = np.random.default_rng(recipe.seed)
        self.first_views = random.integers(self.activations.views, size=len(self.activations.rows))

    def inputs(self, rows: torch.Tensor, epoch: int) -> torch.Tensor:
        """Return the activations of rows as they are stored, in the views of an epoch."""
        if is_stream(self.sampler):
            epoch = getattr(self.sampler, "drawn", epoch)  # a representative gets another view in every batch
        chosen = rows.numpy()
        return self.activations.read(chosen, (self.first_views[chosen] + epoch) % self.activations.views)

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map stored activations (N, ...) to embeddings (N, dim)."""
        return self.embedder.embed_features(self.pooled(inputs))

    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map stored activations (N, ...) to the head's output (N, dim), not normalised."""
        return self.embedder.head(self.pooled(inputs))

    def pooled(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map stored activations (N, ...) to pooled features (N, channels)."""
        return run_tail(self.embedder, self.frozen, as_input(self.embedder, inputs))

    @torch.inference_mode()
    def validation_vectors(self) -> EmbeddedRows:
        """Embed the plain views of the validation rows."""
        self.embedder.eval()
        rows = np.arange(len(self.validation.rows))
        parts = [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
        vectors = [self.embed(self.validation.read(part).to(self.embedder.device)).cpu().numpy() for part in parts]
        joined = np.concatenate([np.empty((0, self.embedder.dim), np.float32), *vectors])
        return EmbeddedRows(joined, self.validation.rows, self.validation.bad)
