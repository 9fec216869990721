"""A recipe for a feature file: whatever backbone it names, the features are those of the file."""

from tophit.data.feature_files import SUFFIX, read_feature_file
from tophit.errors import UsageError
from tophit.models.given_features import LIBRARY
from tophit.recipe import Recipe


def with_given_features(recipe: Recipe) -> Recipe:
    """Return the recipe with the backbone ``features/LENGTH`` if its data are a feature file, else as it is."""
    if not recipe.data.manifest.endswith(SUFFIX):
        return recipe
    if recipe.embedder.trainable != "head":
        raise UsageError(
            f"embedder.trainable: {recipe.data.manifest} holds features, not images, so only a head can be trained on "
            "them; write 'head'."
        )
    channels = read_feature_file(recipe.data.manifest).channels
    embedder = recipe.embedder.model_copy(update={"backbone": f"{LIBRARY}/{channels}", "pooling": "average"})
    return recipe.model_copy(update={"embedder": embedder})
