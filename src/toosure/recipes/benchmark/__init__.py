"""The public benchmark: calibration methods under one protocol; users can add rows."""

from toosure.recipes.benchmark import methods, tables
from toosure.recipes.recipe import Part, Recipe

RECIPE = Recipe(
    "benchmark",
    "Calibration methods under one protocol",
    "the common protocol of docs/reproduce.md",
    (
        Part(
            "table",
            "one row per method: accuracy, calibration, cost; paired differences",
            methods.table,
            tables.findings,
        ),
        Part(
            "choice",
            "the settings among which those of SAM and its variants were chosen",
            methods.choice,
            tables.findings,
            by_default=False,
        ),
    ),
    options=frozenset({"--method", "--scores", "--shift"}),
    several_data_sets=True,
)
