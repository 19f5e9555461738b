"""The recipe of "Towards Unbiased Calibration using Meta-Regularization" (arXiv 2303.15057)."""

from toosure.recipes.gamma_net import ablations, comparison, settling, sweeps
from toosure.recipes.recipe import Part, Recipe

RECIPE = Recipe(
    "gamma-net",
    "Towards Unbiased Calibration using Meta-Regularization",
    "arXiv 2303.15057",
    (
        Part(
            "table",
            "gamma-net with SECE against its baselines",
            sweeps.comparison,
            comparison.findings,
        ),
        Part(
            "settling",
            "what keeps gamma from differing by seed: arms A, D, E, F and ours, five seeds",
            sweeps.arms,
            settling.findings,
        ),
        Part("bandwidth", "the kernel's width", sweeps.bandwidths, ablations.bandwidth_findings),
        Part(
            "features",
            "what the features contribute",
            sweeps.features,
            ablations.feature_findings,
        ),
    ),
)
