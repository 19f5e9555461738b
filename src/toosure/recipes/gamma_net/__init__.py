"""The recipe of "Towards Unbiased Calibration using Meta-Regularization" (arXiv 2303.15057)."""

from toosure.recipes.gamma_net import (
    ablations,
    backbones,
    common,
    comparison,
    cost,
    settling,
    sweeps,
)
from toosure.recipes.recipe import Part, Recipe

RECIPE = Recipe(
    "gamma-net",
    "Towards Unbiased Calibration using Meta-Regularization",
    "arXiv 2303.15057",
    (
        Part(
            "table",
            "gamma-net with SECE against its baselines: ResNet-20",
            sweeps.comparison,
            comparison.findings,
            saves="scores",
        ),
        Part(
            "common",
            "seventeen methods by the common protocol: ResNet-18, 5,273 steps",
            common.configs,
            common.findings,
        ),
        Part(
            "cost",
            "seconds of a step alone on the device, parameters, gain: with one worker",
            cost.configs,
            cost.findings,
            by_default=False,
            saves="nothing",
        ),
        Part(
            "settling",
            "what keeps gamma from differing by seed: arms A, D, E, F and two of ours, five seeds",
            sweeps.arms,
            settling.findings,
            saves="scores",
        ),
        Part(
            "bandwidth",
            "the kernel's width",
            sweeps.bandwidths,
            ablations.bandwidth_findings,
            saves="scores",
        ),
        Part(
            "features",
            "what the features contribute",
            sweeps.features,
            ablations.feature_findings,
            saves="scores",
        ),
        Part(
            "backbones",
            "DenseNet-40 and a small ViT, by the common protocol, one run each",
            backbones.configs,
            backbones.findings,
        ),
    ),
    options=frozenset({"--scores"}),
    several_data_sets=True,
)
