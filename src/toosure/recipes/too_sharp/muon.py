"""Muon's large margins: calibrated on the training set, far too sure on test data."""

from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table
from toosure.recipes.series import mean_and_spread, spread_text
from toosure.recipes.too_sharp import sweeps
from toosure.recipes.too_sharp.hypotheses import groups
from toosure.recipes.too_sharp.trace import SMALL, at_step


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return Muon's margins and its gap between training and test beside the others'."""
    found = groups(setting, shelf, with_bulk=False)
    until = min(series.steps for series in sweeps.columns(setting).values())
    keys = ("train/margin_q50", "train/margin_q01", "train/ece", "val/ece", "val/accuracy")
    means = {
        name: {key: mean_and_spread([at_step(r, key, until) for r in runs])[0] for key in keys}
        for name, runs in found.items()
    }
    rows = tuple(
        (name, *(spread_text([at_step(run, key, until) for run in runs], ".3g") for key in keys))
        for name, runs in found.items()
    )
    header = (
        "",
        "median train margin",
        "1 % train margin",
        "train ECE",
        "test ECE",
        "test accuracy",
    )
    note = f"At step {until:,} of every run, mean ± standard deviation over learning rates."
    claims = claims_of(setting, means) if "Muon" in means else []
    return Findings(claims, [Table("Muon's margins", header, rows, note)], {"muon": means})


def claims_of(setting: Setting, means: dict[str, dict[str, float]]) -> list[Claim]:
    """Judge: margins unusually large, training ECE near zero, test ECE high."""
    own = means["Muon"]
    others = {n: each["train/margin_q50"] for n, each in means.items() if n in ("GD", "SGD", "SAM")}
    why = "judged on CIFAR-10 only" if setting.quick or setting.data != "cifar10" else ""
    margins = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
    return [
        Claim("Muon's training margins are unusually large",
              f"median {own['train/margin_q50']:.2f}; {margins}", "unusually large",
              None if why or not others
              else bool(own["train/margin_q50"] > 2 * max(others.values())),
              why or "ours: twice the others', at the same number of steps"),
        Claim("Muon's training ECE is near zero", f"{own['train/ece']:.4f}", "near zero",
              None if why else bool(own["train/ece"] < SMALL), why or f"ours: below {SMALL}"),
        Claim("Muon is severely over-confident on test data", f"ECE {own['val/ece']:.3f}", "severe",
              None if why else bool(own["val/ece"] > 0.2), why or "ours: ECE above .2"),
    ]  # fmt: skip
