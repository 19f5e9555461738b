"""Muon's large margins: calibrated on training data, over-confident on test data."""

from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claims_without_runs,
    judge,
    missing_runs,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_and_std, mean_std_text
from toosure.recipes.too_sharp import sweeps
from toosure.recipes.too_sharp.hypotheses import runs_by_optimizer
from toosure.recipes.too_sharp.summaries import SMALL, value_at
from toosure.runs import Run

MARGIN = "train/margin_q50"
GAP = "over-confidence"  # computed here: test confidence minus test accuracy
COLUMNS = {
    "median train margin": MARGIN,
    "1 % train margin": "train/margin_q01",
    "train ECE": "train/ece",
    "test ECE": "val/ece",
    "test confidence - accuracy": GAP,
    "test accuracy": "val/accuracy",
}
SEVERE = 0.2  # confidence above accuracy

LARGE_MARGINS = "Muon's training margins are unusually large"
CALIBRATED = "Muon's training ECE is near zero"
OVERCONFIDENT = "Muon is severely over-confident on test data"


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return Muon's margins, and its gap between training and test, beside the others."""
    columns = sweeps.optimizers(setting)
    until = min(column.steps for column in columns.values())  # the same step for all
    groups = runs_by_optimizer(setting, store, with_bulk=False)
    values = {
        name: {key: [quantity(run, key, until) for run in runs] for key in COLUMNS.values()}
        for name, runs in groups.items()
    }

    rows = tuple(
        (name, *(mean_std_text(numbers, ".3g") for numbers in by_key.values()))
        for name, by_key in values.items()
    )
    note = f"At step {until:,} of every run, mean ± standard deviation over learning rates."
    table = Table("Muon's margins", ("", *COLUMNS), rows, note)

    means = {
        name: {key: mean_and_std(numbers)[0] for key, numbers in by_key.items()}
        for name, by_key in values.items()
    }
    present = sum(map(len, groups.values()))
    expected = sum(len(column.rates) for column in columns.values())
    missing = missing_runs(present, expected)
    return Findings(claims(setting, means, missing), [table], {"muon": means})


def quantity(run: Run, key: str, step: float) -> float:
    """Return a column of the table at a step of a run."""
    if key == GAP:
        return value_at(run, "val/confidence", step) - value_at(run, "val/accuracy", step)
    return value_at(run, key, step)


def claims(setting: Setting, means: dict[str, dict[str, float]], missing: str) -> list[Claim]:
    """Judge whether Muon has the largest margins, a small training ECE, the largest test gap."""
    if "Muon" not in means:
        return claims_without_runs(LARGE_MARGINS, CALIBRATED, OVERCONFIDENT)
    muon = means["Muon"]
    others = [by_key for name, by_key in means.items() if name != "Muon"]

    def side_by_side(key: str) -> str:
        return ", ".join(f"{name} {by_key[key]:.2f}" for name, by_key in means.items())

    def is_largest(key: str) -> bool:
        return muon[key] > max((by_key[key] for by_key in others), default=float("inf"))

    reasons = [setting.why_not_judged, missing]
    return [
        judge(
            LARGE_MARGINS,
            found=f"median: {side_by_side(MARGIN)}",
            paper="unusually large",
            holds=is_largest(MARGIN),
            rule="ours: the largest of all, at the same number of steps",
            reasons=reasons,
        ),
        judge(
            CALIBRATED,
            found=f"{muon['train/ece']:.4f}",
            paper="near zero",
            holds=muon["train/ece"] < SMALL,
            rule=f"ours: below {SMALL}",
            reasons=reasons,
        ),
        judge(
            OVERCONFIDENT,
            found=f"confidence minus accuracy: {side_by_side(GAP)}",
            paper="severe",
            holds=muon[GAP] > SEVERE and is_largest(GAP),
            rule=f"ours: above {SEVERE}, and above all others'",
            reasons=reasons,
        ),
    ]
