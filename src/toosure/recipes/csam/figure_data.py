"""The numbers of each figure, read from saved scores, rows and examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toosure.quantities.of_sam import SAM_PATH
from toosure.recipes.benchmark.record import Examples, Record
from toosure.recipes.benchmark.saved_rows import CALIBRATED_BY
from toosure.recipes.benchmark.scored_rows import Row, score_rows
from toosure.recipes.csam import figure_rows
from toosure.recipes.csam.rows import name_of
from toosure.recipes.recipe import Setting
from toosure.recipes.run_store import RunStore

SavedRows = Sequence[Mapping[str, float]]
NetworkErrors = dict[str, dict[str, dict[str, float]]]  # by network, optimizer and calibrator
ROUNDING = 1e-6  # of an ECE computed again from the same probabilities


@dataclass(frozen=True)
class FigureRuns:
    """The records of the figures' runs by row, and examples by run name."""

    records: Mapping[Row, Record]
    examples: Mapping[str, Examples]

    def known(self, rows: Sequence[Row]) -> list[tuple[Row, Record]]:
        """Return the rows that have a run, with its record."""
        return [(row, self.records[row]) for row in rows if row in self.records]


def read_runs(setting: Setting, store: RunStore) -> FigureRuns:
    """Score the figures' runs that are new, and return all saved ones."""
    scored, examples = score_rows(setting, store, figure_rows.all_rows(setting))
    records = {each.row: each.records[0] for each in scored if each.records}
    return FigureRuns(records, examples)


def column(rows: SavedRows, key: str) -> np.ndarray:
    """Return one number along training; NaN for rows that lack it."""
    return np.array([row.get(key, np.nan) for row in rows])


# -- Figures 2 and S4 -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Theory:
    """The theory of SAM along one run: values per row, and each path from theta to theta~."""

    epochs: np.ndarray  # (R,)
    path: np.ndarray  # (R, 5): kappa_min from theta to theta~
    bound: np.ndarray  # (R,): -|g| / rho
    lam: np.ndarray
    lam0: np.ndarray
    failed: float  # statements, over all rows
    unconverged: int  # rows

    @property
    def shares(self) -> list[float]:
        """The share of the path at which each column of `path` lies."""
        return list(SAM_PATH)

    def rows_at(self, shown_at: Sequence[float]) -> list[int]:
        """Return the rows nearest to these shares of the run."""
        places = self.epochs / max(float(self.epochs[-1]), 1e-12)
        return [int(np.abs(places - share).argmin()) for share in shown_at]


def theory_of(record: Record | None) -> Theory | None:
    """Return the theory along a run, or None if its rows lack it."""
    if record is None or record.rows is None:
        return None
    rows = [row for row in record.rows if "train/sam_lambda" in row]
    if not rows:
        return None

    return Theory(
        epochs=column(rows, "epoch"),
        path=np.stack([column(rows, f"train/{key}") for key in SAM_PATH.values()], axis=1),
        bound=column(rows, "train/sam_kappa_bound"),
        lam=column(rows, "train/sam_lambda"),
        lam0=column(rows, "train/sam_lambda_0"),
        failed=float(np.nansum(column(rows, "train/sam_failed"))),
        unconverged=sum("train/sam_kappa_min_unconverged" in row for row in rows),
    )


# -- Figure 3 -------------------------------------------------------------------------------------


def errors_of(record: Record) -> dict[str, float]:
    """Return the test ECE in points: raw, and after each calibrator with a saved error.

    Some records hold the raw error where the fit of a calibrator had a worse NLL than the logits.
    That is not the error of the calibrator, so it counts as not saved.
    """
    raw = record.test["ece"]
    errors = {"raw": raw, "temperature": record.test_after_temperature["ece"]}
    for name in CALIBRATED_BY:
        error = (record.calibrated_ece or {}).get(name)
        if error is not None and abs(error - raw) > ROUNDING:
            errors[name] = error
    return {name: 100 * error for name, error in errors.items()}


def network_errors(setting: Setting, runs: FigureRuns, data: str) -> NetworkErrors:
    """Return the errors by network and optimizer, for networks with both optimizers."""
    by_network: NetworkErrors = {}
    for row, record in runs.known(figure_rows.networks(setting)):
        network, _, optimizer = row.name.partition(": ")
        if row.data == data:
            by_network.setdefault(name_of(setting, network), {})[optimizer] = errors_of(record)
    return {network: both for network, both in by_network.items() if len(both) == 2}


def rows_along(setting: Setting, runs: FigureRuns, data: str) -> dict[str, SavedRows]:
    """Return the saved rows of SGD and SAM along training on a data set."""
    rows_by_name: dict[str, SavedRows] = {}
    for row, record in runs.known(figure_rows.along_training(setting)):
        if row.data == data and record.rows is not None:
            rows_by_name[row.name] = record.rows
    return rows_by_name


# -- Figures S5 and S6 ----------------------------------------------------------------------------


def label_entropy(examples: Examples) -> float:
    """Return the mean over test images of H(p_y), in nats.

    >>> round(label_entropy({"log_probability": np.log([0.5, 1.0])}), 3)
    0.347
    """
    log_p = np.asarray(examples["log_probability"], dtype=float)
    p = np.exp(log_p)
    rest = np.clip(1 - p, 0, 1)
    entropy = -p * log_p - rest * np.log(np.where(rest > 0, rest, 1.0))
    return float(entropy.mean())


def sweep_numbers(runs: FigureRuns, rows: Sequence[Row]) -> dict[float, dict[str, float]]:
    """Return accuracy, ECE (points) and H(p_y) by the number at the end of a row's name."""
    numbers = {}
    for row, record in runs.known(rows):
        value = float(row.name.rpartition(": ")[2])
        numbers[value] = {
            "accuracy": 100 * record.test["accuracy"],
            "ece": 100 * record.test["ece"],
        }
        if record.name in runs.examples:
            numbers[value]["entropy"] = label_entropy(runs.examples[record.name])
    return numbers


def radius_numbers(
    setting: Setting, runs: FigureRuns, data: str, network: str
) -> dict[float, dict[str, float]]:
    """Return the numbers of Figure S5 by radius."""
    rows = [
        row
        for row in figure_rows.radii(setting)
        if row.data == data and row.name.startswith(f"{network}: ")
    ]
    return sweep_numbers(runs, rows)
