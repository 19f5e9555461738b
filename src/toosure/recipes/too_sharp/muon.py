"""Muon's large margins: calibrated on the training set, far too sure on test data."""

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.series import mean_and_spread, spread_text
from toosure.recipes.too_sharp import sweeps
from toosure.recipes.too_sharp.hypotheses import groups
from toosure.recipes.too_sharp.trace import SMALL, at_step
from toosure.runs import Run

MARGIN, GAP = "train/margin_q50", "over-confidence"
SHOWN = {
    "median train margin": MARGIN,
    "1 % train margin": "train/margin_q01",
    "train ECE": "train/ece",
    "test ECE": "val/ece",
    "test confidence - accuracy": GAP,
    "test accuracy": "val/accuracy",
}
SEVERE = 0.2  # confidence above accuracy
SAYS = (
    "Muon's training margins are unusually large",
    "Muon's training ECE is near zero",
    "Muon is severely over-confident on test data",
)


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return Muon's margins and its gap between training and test beside the others'."""
    runs = groups(setting, shelf, with_bulk=False)
    until = min(series.steps for series in sweeps.columns(setting).values())
    found = {
        name: {key: [value(run, key, until) for run in of] for key in SHOWN.values()}
        for name, of in runs.items()
    }
    rows = tuple(
        (name, *(spread_text(values, ".3g") for values in of.values()))
        for name, of in found.items()
    )
    note = f"At step {until:,} of every run, mean ± standard deviation over learning rates."
    means = {n: {k: mean_and_spread(v)[0] for k, v in of.items()} for n, of in found.items()}
    wanted = sum(len(series.rates) for series in sweeps.columns(setting).values())
    lack = lacking(sum(map(len, runs.values())), wanted)
    return Findings(
        claims_of(setting, means, lack), [Table("Muon's margins", ("", *SHOWN), rows, note)],
        {"muon": means},
    )  # fmt: skip


def value(run: Run, key: str, until: float) -> float:
    if key == GAP:
        return at_step(run, "val/confidence", until) - at_step(run, "val/accuracy", until)
    return at_step(run, key, until)


def claims_of(setting: Setting, means: dict[str, dict[str, float]], lack: str) -> list[Claim]:
    """Judge: the largest margins of all, training ECE near zero, the largest gap on test data."""
    if "Muon" not in means:
        return unrun(*SAYS)
    own = means["Muon"]
    others = {name: of for name, of in means.items() if name != "Muon"}
    unless = (setting.elsewhere, lack)

    def beside(key: str) -> str:
        return ", ".join(f"{name} {of[key]:.2f}" for name, of in means.items())

    def largest(key: str) -> bool:
        return own[key] > max((of[key] for of in others.values()), default=float("inf"))

    return [
        judged(SAYS[0], f"median: {beside(MARGIN)}", "unusually large", largest(MARGIN),
               "ours: the largest of all, at the same number of steps", *unless),
        judged(SAYS[1], f"{own['train/ece']:.4f}", "near zero", own["train/ece"] < SMALL,
               f"ours: below {SMALL}", *unless),
        judged(SAYS[2], f"confidence minus accuracy: {beside(GAP)}", "severe",
               own[GAP] > SEVERE and largest(GAP),
               f"ours: above {SEVERE}, and above all others'", *unless),
    ]  # fmt: skip
