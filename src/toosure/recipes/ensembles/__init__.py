"""The recipe of ensembles: what averaging several networks does, under one protocol."""

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
            saves="nothing",  # in score files of its own, by the findings
        ),
    ),
    options=frozenset({"--scores"}),
)
