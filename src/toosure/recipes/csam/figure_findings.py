"""The claims on the figures, and their numbers as tables."""

from collections.abc import Mapping

from toosure.recipes.benchmark.saved_rows import CALIBRATED_BY
from toosure.recipes.csam import figure_claims, figure_data, figure_rows, sweep_claims
from toosure.recipes.csam.figure_data import FigureRuns
from toosure.recipes.csam.theory_figures import theory_run, theory_table
from toosure.recipes.recipe import Claim, Findings, Setting, Table
from toosure.recipes.run_store import RunStore

NETWORKS = ("ResNet-20", "ResNet-56")
NOT_KEPT = "not kept"


def findings(setting: Setting, store: RunStore) -> Findings:
    """Judge what the paper reads from its figures, and print the numbers behind them."""
    runs = figure_data.read_runs(setting, store)
    claims: list[Claim] = []
    tables: list[Table] = []

    if "cifar10" in setting.data_sets:
        theory = theory_run(setting, runs)
        shown_at = figure_rows.PATHS_SHOWN_AT
        reason = setting.why_not_judged_on_cifar
        where = "ResNet-56, CIFAR-10"
        claims += figure_claims.theory_claims("2", where, theory, shown_at, reason)
        if theory is not None:
            tables.append(theory_table("SAM's theory along training (Figure 2)", theory))

    for data in setting.data_sets:
        claims += error_claims(setting, runs, data)
        tables += error_tables(setting, runs, data)
        claims += radius_claims(setting, runs, data)
    tables += sweep_tables(setting, runs)
    if "cifar10" in setting.data_sets:
        by_gamma = figure_data.sweep_numbers(runs, figure_rows.gammas(setting))
        claims += sweep_claims.gamma_claims(setting, by_gamma)
    return Findings(claims, tables, {"runs": sorted(r.name for r in runs.records.values())})


# -- Figure 3 -------------------------------------------------------------------------------------


def error_claims(setting: Setting, runs: FigureRuns, data: str) -> list[Claim]:
    """Judge Figure 3 on one data set."""
    by_network = figure_data.network_errors(setting, runs, data)
    along = figure_data.rows_along(setting, runs, data)
    return [
        figure_claims.ratio_claim(setting, data, "ResNet-56", by_network.get("ResNet-56")),
        *(
            figure_claims.calibrated_claim(data, network, errors)
            for network, errors in by_network.items()
        ),
        figure_claims.persistent_claim(setting, data, along),
    ]


def error_tables(setting: Setting, runs: FigureRuns, data: str) -> list[Table]:
    """Return the tables of the ECE of SGD and SAM by network, raw and after each calibrator."""
    by_network = figure_data.network_errors(setting, runs, data)
    names = ("raw", "temperature", *CALIBRATED_BY)
    rows = [
        (network, optimizer, *(cell(errors, name) for name in names))
        for network, both in by_network.items()
        for optimizer, errors in both.items()
    ]
    if not rows:
        return []

    note = (
        "ECE of the test images in points, 15 bins, one seed; calibrators are fitted on the "
        "validation images."
    )
    if any(NOT_KEPT in row for row in rows):
        note += (
            f" {NOT_KEPT}: the validation images lack a class, so that the calibrator cannot be "
            "fitted, or an earlier version scored the run, which kept no such error."
        )
    header = ("network", "optimizer", *names)
    return [Table(f"Calibrated errors (Figure 3 a, b), {data}", header, tuple(rows), note)]


def cell(numbers: Mapping[str, float], name: str, form: str = ".2f") -> str:
    """Return a number as text, or why there is none if it was not saved."""
    return f"{numbers[name]:{form}}" if name in numbers else NOT_KEPT


# -- Figures S5 and S6 ----------------------------------------------------------------------------


def radius_claims(setting: Setting, runs: FigureRuns, data: str) -> list[Claim]:
    """Judge Figure S5 on one data set."""
    expected_runs = len(figure_rows.RADII)
    has_inner_optimum = data == "cifar10"
    numbers = {name: figure_data.radius_numbers(setting, runs, data, name) for name in NETWORKS}

    claims = [
        claim
        for network, values in numbers.items()
        for claim in sweep_claims.radius_claims(
            setting, f"{data}, {network}", values, expected_runs, has_inner_optimum
        )
    ]

    small, large = numbers.values()
    return claims + sweep_claims.capacity_claims(
        setting, data, small, large, expected_runs, has_inner_optimum
    )


def sweep_tables(setting: Setting, runs: FigureRuns) -> list[Table]:
    """Return the numbers of Figures S5 and S6 as tables."""
    rows = []
    for data in setting.data_sets:
        for network in NETWORKS:
            numbers = figure_data.radius_numbers(setting, runs, data, network)
            rows += [
                sweep_cells((data, network, f"rho {v:g}"), numbers[v]) for v in sorted(numbers)
            ]

    by_gamma = figure_data.sweep_numbers(runs, figure_rows.gammas(setting))
    rows += [
        sweep_cells(("cifar10", "ResNet-56", f"rho 0.05, gamma {v:g}"), by_gamma[v])
        for v in sorted(by_gamma)
    ]

    if not rows:
        return []
    header = ("data", "network", "setting", "H(p_y), nats", "accuracy, %", "ECE, points")
    note = "Test images at the end of training, one seed; gamma 0 is SAM."
    return [Table("Radii and gammas (Figures S5, S6)", header, tuple(rows), note)]


def sweep_cells(names: tuple[str, ...], numbers: Mapping[str, float]) -> tuple[str, ...]:
    """Return the cells of one setting of a sweep."""
    texts = (cell(numbers, "entropy", ".4f"), cell(numbers, "accuracy"), cell(numbers, "ece"))
    return (*names, *texts)
