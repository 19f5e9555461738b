"""The recipe of "Too Sharp, Too Sure: When Calibration Follows Curvature" (arXiv 2604.20614)."""

from functools import partial

from toosure.config import RunConfig
from toosure.recipes.recipe import Part, Recipe, Setting
from toosure.recipes.too_sharp import (
    batch_sharpness,
    bulk_every,
    bulk_sgd,
    calmo,
    calmo_table,
    certificates,
    figures,
    hypotheses,
    mse,
    muon,
    rise_and_fall,
    settings,
    sweeps,
    table1,
)


def with_table_1(setting: Setting) -> list[RunConfig]:
    """Return the BulkSGD runs, with the runs of Table 1 to compare them with."""
    return [*sweeps.table_1(setting), *sweeps.bulk_sgd(setting).values()]


def long_with_sgd(setting: Setting) -> list[RunConfig]:
    """Return the longer BulkSGD runs, with the SGD runs below them in the table."""
    sgd = sweeps.rate_configs(setting, "SGD", setting.first_seed)
    return [*sgd, *sweeps.long_bulk_sgd(setting).values()]


def squared_error(setting: Setting) -> list[RunConfig]:
    return [config for configs in sweeps.squared_error(setting).values() for config in configs]


def certified(setting: Setting) -> list[RunConfig]:
    return [sweeps.certified_run(setting)]


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
            figures.table_1_drawings,
            saves="nothing",
        ),
        Part(
            "fig1",
            "both rise and fall, and when they peak",
            rise_and_fall.configs,
            rise_and_fall.findings,
            figures.figure_1_drawings,
            saves="nothing",
        ),
        Part(
            "settings",
            "which of the settings that the paper does not give fit it best",
            settings.configs,
            settings.findings,
            by_default=False,
            saves="nothing",
        ),
        Part("muon", "Muon's large margins", sweeps.table_1, muon.findings, saves="nothing"),
        Part(
            "fig2",
            "BulkSGD, and flat minima against flat directions",
            with_table_1,
            hypotheses.findings,
            figures.bulk_sgd_drawings,
            saves="nothing",
        ),
        Part(
            "bulk-long",
            "BulkSGD for longer, its directions renewed every tenth step",
            long_with_sgd,
            bulk_sgd.long_run_findings,
            by_default=False,
            saves="nothing",
        ),
        Part(
            "bulk-every",
            "BulkSGD, its directions renewed at every step",
            bulk_every.configs,
            bulk_every.findings,
            bulk_every.bulk_every_drawings,
            by_default=False,
            takes_steps=True,
            saves="nothing",
        ),
        Part(
            "mse",
            "squared error is under-confident and stays sharp",
            squared_error,
            mse.findings,
            figures.mse_drawings,
            saves="nothing",
        ),
        Part(
            "certificates",
            "the theorems along a run",
            certified,
            certificates.findings,
            figures.certificate_drawings,
            saves="nothing",
        ),
        Part(
            "batch",
            "batch sharpness beside Gauss-Newton",
            sweeps.batch_sharpness,
            batch_sharpness.findings,
            figures.batch_sharpness_drawings,
            saves="nothing",
        ),
        Part(
            "calmo",
            "the margin-aware objective with SGD",
            calmo.configs,
            calmo.findings,
            saves="scores",
        ),
        Part(
            "calmo-muon",
            "the margin-aware objective with Muon",
            partial(calmo.configs, cells=calmo.MUON),
            partial(calmo.findings, cells=calmo.MUON),
            saves="scores",
        ),
        Part(
            "calmo-more",
            "the whole table: four optimizers, six methods",
            calmo_table.configs,
            calmo_table.findings,
            by_default=False,
            saves="scores",
        ),
    ),
    options=frozenset({"--scores"}),
)
