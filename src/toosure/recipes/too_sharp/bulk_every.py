"""BulkSGD as in the paper, with directions renewed at every step, beside GD and SGD."""

from collections.abc import Sequence
from functools import partial

from toosure.config import RunConfig
from toosure.recipes import drawings
from toosure.recipes.recipe import (
    Claim,
    Drawing,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    claims_without_runs,
    judge,
    missing_runs,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text
from toosure.recipes.too_sharp import bulk_sgd, figures, sweeps
from toosure.recipes.too_sharp.hypotheses import SUBSTANTIAL, bulk_name, step_below_text
from toosure.recipes.too_sharp.summaries import SMALL, mean_peak, peak_ece, peak_step, step_below
from toosure.runs import Run

REFERENCES = ("GD", "SGD")
PAPER_STEPS = 100_000


def configs(setting: Setting) -> list[RunConfig]:
    """Return the BulkSGD runs, then the runs of GD and SGD to compare them with."""
    references = [
        config
        for name in REFERENCES
        for config in sweeps.rate_configs(setting, name, setting.first_seed)
    ]
    return [*sweeps.bulk_every_step(setting).values(), *references]


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return sharpness, loss, peak and decay of BulkSGD beside GD and SGD."""
    bulk = sweeps.bulk_every_step(setting)
    claims = [
        *bulk_sgd.claims(setting, store, bulk),
        *peak_claims(setting, store, bulk),
        decay_claim(setting, store, bulk),
    ]
    tables = [bulk_sgd.table(setting, store, bulk), decay_table(setting, store, bulk)]
    return Findings(claims, tables)


# -- claims ---------------------------------------------------------------------------------


def peak_claims(setting: Setting, store: RunStore, bulk: sweeps.BulkRuns) -> list[Claim]:
    """Judge for each k whether the mean peak is substantially lower than GD's and SGD's."""
    references = {
        name: store.runs(sweeps.rate_configs(setting, name, setting.first_seed))
        for name in REFERENCES
    }
    claims = []
    for removed, chosen in sweeps.by_directions(bulk).items():
        statement = (
            f"BulkSGD, k = {removed}, directions renewed at every step, peaks substantially lower "
            "than GD and SGD"
        )
        runs = store.runs(chosen, diverged=True)
        if not runs or not all(references.values()):
            claims += claims_without_runs(statement)
            continue

        peak = mean_peak(runs)
        reference_peaks = {name: mean_peak(of) for name, of in references.items()}
        threshold = SUBSTANTIAL * min(reference_peaks.values())
        present = len(runs) + sum(map(len, references.values()))
        rates = sum(len(sweeps.optimizers(setting)[name].rates) for name in REFERENCES)
        beside = ", ".join(f"{name} {value:.3f}" for name, value in reference_peaks.items())
        claims.append(
            judge(
                statement,
                found=f"{peak:.3f}; {beside} (n = {len(runs)} rates)",
                paper="substantially lower",
                holds=peak < threshold,
                rule=f"ours: below {SUBSTANTIAL} of the lower of GD and SGD, {threshold:.3f}",
                reasons=[
                    setting.why_not_judged,
                    missing_runs(present, len(chosen) + rates),
                    ends_before_peaks(runs, references),
                ],
            )
        )
    return claims


def ends_before_peaks(runs: Sequence[Run], references: dict[str, list[Run]]) -> str:
    """Return the reason not to judge if runs end before the others peak, else an empty text."""
    end = min(run.last["step"] for run in runs)
    peak = max(peak_step(run) for group in references.values() for run in group)
    return f"ends at step {end:,}, GD and SGD peak up to {peak:,}" if end < peak else ""


def decay_claim(setting: Setting, store: RunStore, bulk: sweeps.BulkRuns) -> Claim:
    """Judge whether ECE stays below .01 from an earlier step than SGD's, in every run."""
    statement = "BulkSGD's training ECE decays faster than SGD's, directions renewed at every step"
    pairs = run_pairs(setting, store, bulk)
    if not pairs:
        return claim_without_runs(statement)

    earlier = [step_below(run) < step_below(sgd) for run, sgd in pairs]
    settled = step_below_text([run for run, _ in pairs])
    sgd_settled = step_below_text(list({sgd.name: sgd for _, sgd in pairs}.values()))
    return judge(
        statement,
        found=f"{sum(earlier)} of {len(pairs)} runs; below {SMALL} from step {settled}, "
        f"SGD {sgd_settled}",
        paper="faster ECE decay",
        holds=all(earlier),
        rule=f"ours: stays below {SMALL} from an earlier step than SGD at the same rate, every run",
        reasons=[setting.why_not_judged, missing_runs(len(pairs), len(bulk))],
    )


def run_pairs(setting: Setting, store: RunStore, bulk: sweeps.BulkRuns) -> list[tuple[Run, Run]]:
    """Return each BulkSGD run with the SGD run of its learning rate, if both exist."""
    sgd = sgd_by_rate(setting)
    pairs = []
    for (rate, _), config in bulk.items():
        run = store.run(config, diverged=True)
        reference = store.run(sgd[rate])
        if run is not None and reference is not None:
            pairs.append((run, reference))
    return pairs


def sgd_by_rate(setting: Setting) -> dict[str, RunConfig]:
    rates = sweeps.optimizers(setting)["SGD"].rates
    return dict(zip(rates, sweeps.rate_configs(setting, "SGD", setting.first_seed), strict=True))


# -- tables and figures ---------------------------------------------------------------------


def decay_table(setting: Setting, store: RunStore, bulk: sweeps.BulkRuns) -> Table:
    """Lay out peak and decay by number of removed directions."""
    groups = {
        bulk_name(removed): store.runs(chosen, diverged=True)
        for removed, chosen in sweeps.by_directions(bulk).items()
    }
    groups |= {
        name: store.runs(sweeps.rate_configs(setting, name, setting.first_seed))
        for name in REFERENCES
    }

    rows = tuple(
        (
            name,
            str(len(runs)),
            mean_std_text([peak_ece(run) for run in runs], ".3f"),
            step_below_text(runs),
            f"{max(run.last['step'] for run in runs):,}",
        )
        for name, runs in groups.items()
        if runs
    )

    header = ("", "runs", "peak ECE", f"steps to ECE < {SMALL}", "steps")
    note = (
        f"Training split, mean ± standard deviation over learning rates.{paper_length(store, bulk)}"
    )
    return Table("Peak and decay", header, rows, note)


def paper_length(store: RunStore, bulk: sweeps.BulkRuns) -> str:
    """Return how long the paper's number of steps would take at the speed of the slowest run."""
    shorter = [run.last for run in store.runs(bulk.values()) if run.last["step"] < PAPER_STEPS]
    per_step = [(row.get("seconds") or 0) / row["step"] for row in shorter]
    if not any(per_step):
        return ""
    hours = max(per_step) * PAPER_STEPS / 3600
    return f" At the speed of these runs the paper's {PAPER_STEPS:,} steps take {hours:.1f} hours."


def bulk_every_drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return Figure 2 and A7 (A14 on CIFAR-100) of the runs renewed at every step."""
    columns = figures.bulk_columns(store, sweeps.bulk_every_step(setting))
    if not columns:
        return []

    every = figures.runs_of_columns(columns)
    number = figures.paper_number(setting, "A7", "A14")
    return [
        Drawing(
            "bulk-every",
            "BulkSGD, its 1, 3, 5 sharpest directions found anew at every step (Figure 2)",
            "Training split.",
            partial(drawings.trajectories, columns, figures.MAIN_PANELS),
        ),
        Drawing(
            "trajectory-bulk-every",
            f"BulkSGD along training, directions found anew at every step{number}",
            "Left training, right validation, one colour per run.",
            partial(drawings.trajectories, figures.both_splits(every), figures.PANELS),
        ),
    ]
