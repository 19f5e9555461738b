"""gamma-net with SECE against CE, focal and FLSD-53: calibration, accuracy, parameters."""

from toosure.recipes.benchmark.scored_rows import Rows, ScoredRow, why_not_judged
from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.claims import accuracy_claim, all_errors_claim
from toosure.recipes.gamma_net.rows import ERRORS, OURS, score_configs, unrounded
from toosure.recipes.parameters import learned_size
from toosure.recipes.recipe import Claim, Findings, Setting, Table, claim_without_runs
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text

NOTE = (
    "Test split at the end of training, 15 bins, errors in points, mean ± standard deviation over "
    "seeds. ResNet-20, crops and flips, SGD 0.1 with momentum .9 and weight decay "
    "5e-4, batch 128, 10,000 steps in bf16, the rate cut by 10 at half and three quarters. "
    "gamma-net cuts its meta split, a tenth, from its own training images."
)
ACCURATE = "... at competitive accuracy"


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the main table, and the claims against each baseline."""
    configs = {name: sweeps.method_configs(setting, name) for name in sweeps.METHODS}
    rows = score_configs(setting, store, configs)

    header = ("method", "seeds", "accuracy %", *ERRORS, "parameters")
    cells = tuple(method_cells(row) for row in rows.values() if row.records)
    title = f"gamma-net, ResNet-20, {sweeps.single_data(setting, 'cifar10')}"
    table = Table(title, header, cells, NOTE)
    return Findings(claims(setting, rows), [table], unrounded(rows))


# -- claims ---------------------------------------------------------------------------------


def claims(setting: Setting, rows: Rows) -> list[Claim]:
    """Judge whether each calibration error is below each baseline, at competitive accuracy."""
    ours = rows[OURS]
    errors_claims = []
    for name in sweeps.BASELINES:
        statement = f"gamma-net + SECE is better calibrated than {name}"
        reasons = why_not_judged(setting, [ours, rows[name]])
        errors_claims.append(all_errors_claim(statement, ours, rows[name], reasons))
    return [*errors_claims, accurate_as_best(setting, rows)]


def accurate_as_best(setting: Setting, rows: Rows) -> Claim:
    """Judge whether gamma-net is at most a point less accurate than the best baseline."""
    ours = rows[OURS]
    baselines = [rows[name] for name in sweeps.BASELINES]
    accuracies = [row.mean("accuracy") for row in baselines if row.records]
    if not ours.records or not accuracies:
        return claim_without_runs(ACCURATE)

    own = ours.mean("accuracy")
    best = max(accuracies)
    found = f"{100 * own:.1f} %, best baseline {100 * best:.1f} %"
    reasons = why_not_judged(setting, [ours, *baselines])
    return accuracy_claim(ACCURATE, found, own, best, reasons)


# -- table ----------------------------------------------------------------------------------


def method_cells(row: ScoredRow) -> tuple[str, ...]:
    """Return the cells of one method."""
    size = learned_size(row.records[0].config)
    return (row.name, str(len(row.records)), *score_cells(row), f"{size:,}")


def score_cells(row: ScoredRow) -> tuple[str, ...]:
    """Return accuracy and the four calibration errors, in per cent."""
    accuracy = mean_std_text(row.points("accuracy"), ".1f")
    errors = (mean_std_text(row.points(key), ".2f") for key in ERRORS.values())
    return accuracy, *errors
