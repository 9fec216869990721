"""The recipe: one typed YAML file that describes a whole run."""

from tophit.recipe.choosing import Section
from tophit.recipe.fields import recipe_fields
from tophit.recipe.listing import recipe_groups
from tophit.recipe.reading import (
    apply_overrides,
    make_recipe,
    read_recipe,
    recipe_names,
    shipped_for_paper,
    variant_names,
)
from tophit.recipe.recipe_files import merged, table_rows
from tophit.recipe.sections import Recipe

__all__ = [
    "Recipe",
    "Section",
    "apply_overrides",
    "make_recipe",
    "merged",
    "read_recipe",
    "recipe_fields",
    "recipe_groups",
    "recipe_names",
    "shipped_for_paper",
    "table_rows",
    "variant_names",
]
