"""The recipe: one typed YAML file that says all of a run."""

from tophit.recipe.fields import recipe_fields
from tophit.recipe.reading import make_recipe, read_recipe, recipe_names, variant_names
from tophit.recipe.sections import Recipe
from tophit.recipe.tables import table_rows

__all__ = ["Recipe", "make_recipe", "read_recipe", "recipe_fields", "recipe_names", "table_rows", "variant_names"]
