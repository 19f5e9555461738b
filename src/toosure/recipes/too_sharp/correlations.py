"""Correlations of calibration error and sharpness along every run of Table 1."""

from typing import Any, NamedTuple

from toosure.recipes.recipe import Setting
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import Correlations, correlate
from toosure.recipes.too_sharp import sweeps
from toosure.runs import Run


class Keys(NamedTuple):
    """The columns of a run that one row of Table 1 compares."""

    error: str
    sharpness: str
    loss: str  # held fixed in the partial correlation


# Test rows pair the test error with the sharpness of the test split: with the sharpness of the
# training split they come out negative.
ROWS = {
    "train ECE": Keys("train/ece", "train/gn_sharpness", "train/loss"),
    "train KCE": Keys("train/mmce", "train/gn_sharpness", "train/loss"),
    "test ECE": Keys("val/ece", "val/gn_sharpness", "val/loss"),
    "test KCE": Keys("val/mmce", "val/gn_sharpness", "val/loss"),
}
MIXED_SPLITS = {
    "test ECE, train sharpness": Keys("val/ece", "train/gn_sharpness", "val/loss"),
}

RateCorrelations = list[Correlations | None]  # one per learning rate; None if the run is missing
TableCorrelations = dict[str, dict[str, dict[int, RateCorrelations]]]  # by row, optimizer, seed


def read_correlations(setting: Setting, store: RunStore) -> TableCorrelations:
    """Return the correlations of every row, optimizer, seed and learning rate."""
    runs = {
        name: {
            seed: [store.run(config) for config in sweeps.rate_configs(setting, name, seed)]
            for seed in setting.seeds_or(0)
        }
        for name in sweeps.optimizers(setting)
    }

    return {
        row: {
            name: {
                seed: [correlate_run(run, keys) for run in rates] for seed, rates in by_seed.items()
            }
            for name, by_seed in runs.items()
        }
        for row, keys in {**ROWS, **MIXED_SPLITS}.items()
    }


def correlate_run(run: Run | None, keys: Keys) -> Correlations | None:
    """Correlate error and sharpness over the rows of one run; None without a run."""
    if run is None:
        return None
    columns = run.columns
    return correlate(columns[keys.error], columns[keys.sharpness], columns[keys.loss])


def of_first_seed(by_seed: dict[int, RateCorrelations]) -> RateCorrelations:
    return by_seed[min(by_seed)]


def over_rates(rates: RateCorrelations, field: str = "pearson") -> list[float]:
    """Return one kind of correlation of the available runs."""
    return [getattr(each, field) for each in rates if each is not None]


def unrounded(correlations: TableCorrelations) -> dict[str, Any]:
    """Return every correlation as plain dictionaries, for the JSON file."""
    return {
        row: {
            name: {
                str(seed): [None if each is None else each._asdict() for each in rates]
                for seed, rates in by_seed.items()
            }
            for name, by_seed in by_optimizer.items()
        }
        for row, by_optimizer in correlations.items()
    }
