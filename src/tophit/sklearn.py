"""Tophit for scikit-learn: an estimator that learns vectors of images, or of features, for pipelines and searches.

>>> from sklearn.neighbors import KNeighborsClassifier
>>> from sklearn.pipeline import make_pipeline
>>> from tophit.sklearn import Embedder
>>> model = make_pipeline(Embedder(loss="proxy-anchor"), KNeighborsClassifier(1, metric="cosine"))
"""

import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("tophit.sklearn needs scikit-learn: pip install 'tophit[sklearn]'.") from error

from tophit import api

_OWN = ("recipe", "out", "progress")  # parameters that are no sections of a recipe


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn unit vectors in which samples of the same label are close.

    A sample is an image file, or a row of features. All labels are learned from: what to keep is chosen on some of
    them (``data.validation_share`` of the recipe), and nothing is tested here. Use scikit-learn's own splits for that.

    Args:
        recipe: A built-in recipe's name, a YAML file, or a dictionary.
        embedder: The recipe's section, such as ``{"trainable": "last"}``; None: the recipe's own. So are the others.
        loss: The loss, by name or as a section.
        miner: The miner, by name or as a section.
        method: The method, by name or as a section.
        batches: The batches, by name or as a section.
        memory: The section ``memory``.
        augment: The section ``augment``.
        optimizer: The section ``optimizer``.
        schedule: The section ``schedule``, such as ``{"epochs": 5}``.
        evaluation: The section ``evaluation``.
        seed: Fixes everything random.
        device: auto (a GPU if there is one), cpu, cuda, mps.
        precision: fp32, bf16 or fp16.
        out: The folder of the run; None: nothing is kept but the embedder.
        progress: Whether to print progress.

    Attributes:
        embedder_: The :class:`tophit.models.Embedder` that was learned.
        learned_from_: ``images`` or ``features``.

    """

    def __init__(
        self,
        recipe: str | Path | Mapping[str, Any] = "head",
        *,
        embedder: Mapping[str, Any] | None = None,
        loss: str | Mapping[str, Any] | None = None,
        miner: str | Mapping[str, Any] | None = None,
        method: str | Mapping[str, Any] | None = None,
        batches: str | Mapping[str, Any] | None = None,
        memory: Mapping[str, Any] | None = None,
        augment: Mapping[str, Any] | None = None,
        optimizer: Mapping[str, Any] | None = None,
        schedule: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        seed: int | None = None,
        device: str | None = None,
        precision: str | None = None,
        out: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        self.recipe = recipe
        self.embedder = embedder
        self.loss = loss
        self.miner = miner
        self.method = method
        self.batches = batches
        self.memory = memory
        self.augment = augment
        self.optimizer = optimizer
        self.schedule = schedule
        self.evaluation = evaluation
        self.seed = seed
        self.device = device
        self.precision = precision
        self.out = out
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803  (scikit-learn's name)
        """Learn from samples with labels.

        Args:
            X: Paths of images (N,), or features (N, c).
            y: Labels (N,).

        """
        if y is None:
            raise ValueError("Embedder requires y to be passed, but the target y is None: it learns from labels.")
        samples = self._samples(X, fitting=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(samples, y)
        check_classification_targets(y)
        labels = [str(label) for label in y.tolist()]
        if len(set(labels)) < 2:
            raise ValueError("Embedder needs at least two classes to learn from; y has only one class.")
        with tempfile.TemporaryDirectory(prefix="tophit-") as folder:
            data = _write_features if _are_features(samples) else _write_manifest
            fields = {name: value for name, value in self._sections().items() if value is not None}
            fields["evaluation"] = {"test": False, "before": False, **fields.get("evaluation", {})}
            out = self.out or Path(folder) / "run"
            chosen = api.train(
                data(samples, labels, Path(folder)), self.recipe, out=out, progress=self.progress, **fields
            )
            self.embedder_ = chosen.embedder
        self._n_features_out = self.embedder_.dim
        return self

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the unit vectors (N, dim) of samples: paths of images (N,), or features (N, c) as they were learned.

        Args:
            X: Paths of images (N,), or features (N, c).

        """
        check_is_fitted(self)
        samples = self._samples(X, fitting=False)
        if _are_features(samples):
            return self.embedder_.embed_arrays(np.ascontiguousarray(samples, np.float32))
        from tophit.data.manifest import ImageRow
        from tophit.embedding.rows import embed_rows
        from tophit.images.decode import BadImage

        found = embed_rows(self.embedder_, [ImageRow(Path(path), "") for path in samples])
        if found.bad:
            raise BadImage(next(iter(found.bad.values())))
        return found.vectors

    def _sections(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params(deep=False).items() if name not in _OWN}

    def _samples(self, X: Any, fitting: bool) -> Any:  # noqa: N803
        """Return paths as a list, or features as a checked array; what was fitted says which, once it is fitted."""
        paths = _are_paths(X)
        if fitting:
            self.learned_from_ = "images" if paths else "features"
            self.__dict__.pop("n_features_in_", None)  # of features that an earlier fit had
        if not paths:
            X = validate_data(self, X, reset=fitting, dtype=np.float32, ensure_min_samples=2 if fitting else 1)  # noqa: N806
        if paths != (self.learned_from_ == "images"):
            raise ValueError(f"Embedder learned from {self.learned_from_}; these samples are not.")
        return [str(path) for path in np.asarray(X, dtype=object).ravel()] if paths else X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _are_paths(samples: Any) -> bool:
    """Return whether samples are names of files: one each, in a list, an array, a series or a column."""
    if isinstance(samples, str | Path) or not hasattr(samples, "__len__") or not len(samples):
        return False
    values = np.asarray(samples, dtype=object) if isinstance(samples, list | tuple) else np.asarray(samples)
    one_each = values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)
    return one_each and isinstance(values.flat[0], str | Path)


def _are_features(samples: Any) -> bool:
    return isinstance(samples, np.ndarray)


def _write_manifest(paths: Sequence[str], labels: Sequence[str], folder: Path) -> Path:
    table = folder / "images.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = ((Path(path).absolute(), label, "train") for path, label in zip(paths, labels, strict=True))
        csv.writer(file).writerows([("path", "label", "split"), *rows])
    return table


def _write_features(features: np.ndarray, labels: Sequence[str], folder: Path) -> Path:
    file = folder / "features.npz"
    np.savez(file, features=features, labels=np.asarray(labels), split=np.full(len(labels), "train"))
    return file
