"""The recipe of ensembles: averages of several networks under one protocol."""

from toosure.recipes.ensembles import sweeps, tables
from toosure.recipes.recipe import Part, Recipe

RECIPE = Recipe(
    "ensembles",
    "Several members, one prediction, under one protocol",
    "baselines of CSAM (Tables 1, 3 and S5); arXiv 2106.04015",
    (
        Part(
            "table",
            "single networks, averages of weights, ensembles: accuracy, NLL, ECE, cost",
            sweeps.all_configs,
            tables.findings,
            saves="nothing",  # the findings save scores in a file of another form
        ),
    ),
    options=frozenset({"--scores"}),
)
