"""The runs behind the figures of the paper: along training, networks, radii and gammas.

Each figure shows single runs, as in the paper: one seed.
"""

from toosure.recipes.benchmark import methods
from toosure.recipes.benchmark.scored_rows import Row, protocol_row
from toosure.recipes.csam.rows import PAPER_SETTINGS, size_of
from toosure.recipes.recipe import Setting

# Shares of the steps: early ones close together, and epochs 50, 150 and 200 of 200.
MEASURE_AT = (0.0, 1 / 60, 1 / 30, 1 / 12, 1 / 6, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
PATHS_SHOWN_AT = (0.25, 0.75, 1.0)
RADII = ("0.02", "0.05", "0.1", "0.15", "0.2")
GAMMAS = ("0", "0.5", "1", "1.5", "2", "2.5", "3")
NETWORKS = ("ResNet-56", "WRN-28-10", "PyramidNet-110")


def along_training(setting: Setting) -> list[Row]:
    """Return Figures 2 and 3 (c, d): ResNet-56 with SGD and SAM, measured twelve times.

    SAM on CIFAR-10 has the radius of Figure 2 and measures its theory.
    """
    size = size_of(setting, "ResNet-56")
    rows = []
    for data in setting.data_sets:
        for name in ("SAM", "SGD"):
            word = PAPER_SETTINGS[data][name]
            theory = name == "SAM" and data == "cifar10"
            measure = ("temperature", "sam_theory") if theory else ("temperature",)

            seeds = (setting.first_seed,)
            row = protocol_row(
                setting, name, word, data, seeds, size, measure=measure, measure_at=MEASURE_AT
            )
            rows.append(row)
    return rows


def gammas(setting: Setting) -> list[Row]:
    """Return Figure S6: ResNet-56 on CIFAR-10 at rho .05; gamma 0 is SAM."""
    if "cifar10" not in setting.data_sets:
        return []
    size = size_of(setting, "ResNet-56")
    rows = []
    for gamma in GAMMAS:
        method = f"csam:rho=0.05,gamma={gamma}" if gamma != "0" else "sam:rho=0.05"
        rows.append(protocol_row(setting, gamma, method, "cifar10", (setting.first_seed,), size))
    return rows


def radii(setting: Setting) -> list[Row]:
    """Return Figure S5: ResNet-20 and ResNet-56 with SAM at five radii."""
    return [
        protocol_row(
            setting,
            f"{network}: {rho}",
            f"sam:rho={rho}",
            data,
            (setting.first_seed,),
            size_of(setting, network),
        )
        for data in setting.data_sets
        for network in ("ResNet-20", "ResNet-56")
        for rho in RADII
    ]


def networks(setting: Setting) -> list[Row]:
    """Return Figures 1 and 3 (a, b): SGD and SAM on four networks.

    ResNet-18 follows the common protocol; the others are networks of Tables S6 to S10.
    """
    seeds = (setting.first_seed,)
    rows = []
    for data in setting.data_sets:
        if not setting.full:
            words = methods.sharpness_aware(data)
            rows += [
                protocol_row(setting, f"ResNet-18: {name}", words[name], data, seeds)
                for name in ("SGD", "SAM")
            ]

        for network in NETWORKS:
            words = PAPER_SETTINGS[data]
            size = size_of(setting, network)
            rows += [
                protocol_row(setting, f"{network}: {name}", words[name], data, seeds, size)
                for name in ("SGD", "SAM")
            ]
    return rows


def all_rows(setting: Setting) -> list[Row]:
    """Return every run that a figure needs; runs that no other part trains come first."""
    return [*along_training(setting), *gammas(setting), *radii(setting), *networks(setting)]
