"""gamma-net and its baselines by the common protocol: ResNet-18, 30 epochs, cosine schedule.

The runs are runs of the benchmark: same configuration, same name, same saved scores.
"""

from dataclasses import replace

from toosure.config import RunConfig
from toosure.recipes.benchmark import protocol, tables
from toosure.recipes.benchmark.scored_rows import (
    Row,
    ScoredRow,
    by_data,
    by_name,
    configs_of,
    protocol_row,
    score_rows,
)
from toosure.recipes.commits import commits_text
from toosure.recipes.gamma_net import common_claims
from toosure.recipes.gamma_net.rows import ALONE, ONE_RATE, OURS, unrounded
from toosure.recipes.parameters import learned_size
from toosure.recipes.recipe import Findings, Setting, Table
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text

# With three seeds, in the order of training.
MAIN: dict[str, str] = {
    OURS: "gamma_net",
    "CE": "sgd",
    "focal": "focal",
    "FLSD-53": "flsd53",
    ONE_RATE: "gamma_net:lr=0.001,level_lr=none",
}
# With one seed; other seeds are shown if their scores are saved.
OTHERS: dict[str, str] = {
    "gamma-net, not learning": "gamma_net:lr=0,level_lr=none",
    "gamma fixed at 1": "focal:gamma=1",
    "Meta-Calibration": "meta_smoothing",
    "CE + 0.5 SECE": "sece",
    "CE + 0.5 SECE, our kernel": ("sece:bandwidth=auto,form=gap,leave_one_out=true,detach=true"),
    ALONE: "loss=toosure.recipes.gamma_net.sece_alone:SECEAlone",
    "MMCE by its formula": "mmce",
    "MMCE as its public code": "mmce:normalization=reference",
    "Brier": "brier",
    "label smoothing": "label_smoothing",
    "gamma-net, only its level learns": "gamma_net:lr=0",
    # How much accuracy the tenth of the images costs that gamma-net takes as its meta split.
    "gamma-net, 1,000 meta images": "gamma_net:meta=1000",
}
SEEDS = (0, 1, 2)
QUICK = (OURS, "CE", "focal", ALONE)

SCORES = {
    key: tables.SCORES.get(key, ("MCE", 100, ".2f"))
    for key in ("accuracy", "nll", "ece", "mce", "adaptive_ece", "classwise_ece", "smece")
}
HEADER = (
    "method",
    "seeds",
    *(name for name, _, _ in SCORES.values()),
    "confidence - accuracy",
    "TCE",
    "parameters",
    "commit",
)
NOTE = (
    f"ResNet-18 (CIFAR stem), {protocol.DESCRIPTION}; the test images at the end of training, 15 "
    "bins, errors in points, mean ± standard deviation over seeds. TCE is the ECE after a "
    "temperature fitted on the validation images. gamma-net and Meta-Calibration cut their meta "
    "split, a tenth, from their own training images. `sece` has the paper's kernel (bandwidth "
    ".01), our kernel that of gamma-net's defaults."
)


# -- runs -----------------------------------------------------------------------------------------


def methods(setting: Setting) -> dict[str, str]:
    """Return the words of each row; a quick table has four."""
    words = {**MAIN, **OTHERS}
    return {name: words[name] for name in QUICK} if setting.quick else words


def seeds(setting: Setting, name: str) -> tuple[int, ...]:
    """Return the seeds to train."""
    several = name in MAIN and not setting.quick
    return setting.seeds_or(*SEEDS) if several else setting.seeds_or(0)


def rows(setting: Setting, data: str) -> list[Row]:
    """Return the rows of a data set: the seeds to train, and other seeds with saved scores.

    If the command names seeds, the rows show no others.
    """
    table = []
    for name, word in methods(setting).items():
        own = protocol_row(setting, name, word, data, seeds(setting, name))
        kept = protocol.configs(setting, word, data, setting.seeds_or(*SEEDS))
        table.append(replace(own, also=tuple(kept)))
    return table


def configs(setting: Setting) -> list[RunConfig]:
    """Return every run of the tables."""
    data_names = tables.data_names(setting)
    return [config for data in data_names for config in configs_of(rows(setting, data))]


# -- findings -------------------------------------------------------------------------------------


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return a table per data set, and the claims on it."""
    data_names = tables.data_names(setting)
    table_rows = [row for data in data_names for row in rows(setting, data)]
    scored, _ = score_rows(setting, store, table_rows)

    result = Findings()
    for data, group in by_data(scored).items():
        cells = tuple(row_cells(row) for row in group if row.records)
        result.tables.append(Table(f"{data}, common protocol", HEADER, cells, NOTE))
        result.claims += common_claims.claims(setting, data, by_name(group))
        result.values[data] = unrounded(by_name(group))
    return result


def row_cells(row: ScoredRow) -> tuple[str, ...]:
    """Return the cells of one method."""
    cells = [row.name, str(len(row.records))]
    for key, (_, scale, form) in SCORES.items():
        cells.append(mean_std_text([scale * value for value in row.values(key)], form))

    cells.append(mean_std_text(row.overconfidence, "+.2f"))
    after = [100 * record.test_after_temperature["ece"] for record in row.records]
    cells.append(mean_std_text(after, ".2f"))

    commits = commits_text(record.commit for record in row.records)
    return *cells, f"{learned_size(row.records[0].config):,}", commits
