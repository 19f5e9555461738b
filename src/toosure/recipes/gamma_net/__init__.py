"""The recipe of "Towards Unbiased Calibration using Meta-Regularization" (arXiv 2303.15057)."""

from toosure.recipes.gamma_net import checks, sweeps, table
from toosure.recipes.recipe import Part, Recipe

RECIPE = Recipe(
    "gamma-net",
    "Towards Unbiased Calibration using Meta-Regularization",
    "arXiv 2303.15057",
    (
        Part("table", "gamma-net with SECE against its baselines", sweeps.main, table.findings),
        Part("bandwidth", "the kernel's width", sweeps.bandwidths, checks.bandwidth),
        Part("features", "what the features contribute", sweeps.features, checks.features),
    ),
)
