"""Papers as recipes: the sweeps that make a table or figure, and the claims that must hold."""

from importlib import import_module

from toosure.recipes.recipe import Claim, Findings, Part, Recipe, Setting, Shelf, Table

__all__ = ["RECIPES", "Claim", "Findings", "Part", "Recipe", "Setting", "Shelf", "Table", "recipe"]

RECIPES = {"too-sharp": "toosure.recipes.too_sharp", "gamma-net": "toosure.recipes.gamma_net"}


def recipe(name: str) -> Recipe:
    """Return the recipe of a name.

    >>> recipe("too-sharp").name
    'too-sharp'
    """
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}. Known: {', '.join(RECIPES)}")
    return import_module(RECIPES[name]).RECIPE
