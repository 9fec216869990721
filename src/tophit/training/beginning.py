"""What a run says and does before its first step: what is held out to choose the epoch, and where the head begins."""

from tophit.data.manifest import Manifest
from tophit.methods import Stepper
from tophit.models.embedder import Embedder
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.training.head_start import MOST_IMAGES, begin_head, sample_rows
from tophit.training.run_rows import RunRows
from tophit.training.sources import FeatureSource, Source, shared_features
from tophit.wording import counted


def selection_note(recipe: Recipe, rows: RunRows, selection: Manifest, selects: bool) -> str:
    """Return how the best epoch is chosen; empty if no images are left to choose it by and none were wanted."""
    classes, images = len(set(selection.labels)), len(selection)
    if selects and selection.kind == "several":
        return f"{images} images are held out of training to choose the best epoch."
    if selects and recipe.evaluation.select_on == "test":
        return f"The best epoch is chosen on the {classes} test classes, so the results on them are optimistic."
    if selects:
        return f"{classes} classes ({images} images) are held out of training to choose the best epoch."
    if images:
        return "No validation class has two images: the last epoch will be kept."
    if recipe.data.validation_share:
        return (
            f"{counted(len(set(rows.train.labels)), 'training class')} are too few to hold "
            f"{recipe.data.validation_share:.0%} of them out: the last epoch will be kept. To choose the best "
            "epoch on two of them: --set data.validation_share=0.5"
        )
    return ""


def begin_at_components(
    recipe: Recipe, embedder: Embedder, source: Source, train: Manifest, stepper: Stepper, view: View
) -> None:
    """Let the head begin at principal components of the training features, if the recipe wants that."""
    if recipe.embedder.head_start == "random":
        return
    if isinstance(source, FeatureSource):
        features, images = source.features.cpu().numpy(), source.images
    else:
        rows = [train.rows[i] for i in sample_rows(train, MOST_IMAGES, recipe.seed)]
        sample = shared_features(stepper, embedder, rows, view.track("Features"))
        features, images = sample.values, [rows[i] for i in sample.rows]
    whitens = recipe.embedder.head_start == "whitened"
    start = begin_head(embedder, features, [image.label for image in images] if whitens else None)
    if start is not None:
        view.note(start.sentence(embedder.dim))
