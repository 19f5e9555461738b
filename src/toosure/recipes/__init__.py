"""Papers as recipes: the runs behind a table or figure, and the claims that must hold."""

from importlib import import_module

from toosure.recipes.recipe import Claim, Findings, Part, Recipe, RunMixture, Setting, Table
from toosure.recipes.run_store import RunStore
from toosure.sentences import did_you_mean

__all__ = [
    "RECIPES",
    "Claim",
    "Findings",
    "Part",
    "Recipe",
    "RunMixture",
    "RunStore",
    "Setting",
    "Table",
    "recipe",
]

RECIPES = {
    "too-sharp": "toosure.recipes.too_sharp",
    "gamma-net": "toosure.recipes.gamma_net",
    "ensembles": "toosure.recipes.ensembles",
    "benchmark": "toosure.recipes.benchmark",
    "csam": "toosure.recipes.csam",
    "radius": "toosure.recipes.radius",
}


def recipe(name: str) -> Recipe:
    """Return the recipe with this name.

    >>> recipe("too-sharp").name
    'too-sharp'
    """
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES, ".")
        raise ValueError(f"there is no recipe {name!r}{hint} Known: {', '.join(RECIPES)}")

    paper: Recipe = import_module(RECIPES[name]).RECIPE
    return paper
