"""The recipe of "Too Sharp, Too Sure: When Calibration Follows Curvature" (arXiv 2604.20614)."""

from toosure.recipes.recipe import Part, Recipe
from toosure.recipes.too_sharp import (
    batch,
    bulk,
    calmo,
    certificates,
    figures,
    hypotheses,
    mse,
    muon,
    rise_and_fall,
    sweeps,
    table1,
)

RECIPE = Recipe(
    "too-sharp",
    "Too Sharp, Too Sure",
    "arXiv 2604.20614",
    (
        Part(
            "table1",
            "calibration error follows sharpness",
            sweeps.table_1,
            table1.findings,
            figures.of_table_1,
        ),
        Part(
            "fig1",
            "both rise, peak and fall",
            rise_and_fall.configs,
            rise_and_fall.findings,
            figures.of_figure_1,
        ),
        Part("muon", "Muon's large margins", sweeps.table_1, muon.findings),
        Part(
            "fig2",
            "BulkSGD, and flat minima against flat directions",
            lambda s: [*sweeps.table_1(s), *sweeps.bulk(s).values()],
            hypotheses.findings,
            figures.of_bulk,
        ),
        Part(
            "bulk-long",
            "BulkSGD for longer",
            lambda s: [*sweeps.column(s, "SGD", s.first), *sweeps.long_bulk(s).values()],
            bulk.findings,
            usual=False,
        ),
        Part(
            "mse",
            "squared error is under-confident and stays sharp",
            lambda s: [config for each in sweeps.mse(s).values() for config in each],
            mse.findings,
            figures.of_mse,
        ),
        Part(
            "certificates",
            "the theorems along a run",
            lambda s: [sweeps.certified(s)],
            certificates.findings,
            figures.of_certificates,
        ),
        Part("batch", "batch sharpness beside Gauss-Newton", sweeps.batches, batch.findings),
        Part("calmo", "the margin-aware objective", calmo.configs, calmo.findings),
        Part(
            "calmo-more",
            "its halves, its rivals and other optimizers",
            lambda s: calmo.configs(s, calmo.MORE),
            lambda s, shelf: calmo.findings(s, shelf, calmo.MORE),
            usual=False,
        ),
    ),
)
