"""The checks that readers of the gamma-net paper ask for: bandwidth, and what features add."""

import numpy as np

from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.table import ERRORS, NOTE, figures, mean, tested
from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.series import spread_text
from toosure.runs import Run

HEADER = ("seeds", "accuracy %", *ERRORS, "gamma at the end")


def gamma(runs: list[Run]) -> str:
    """Print the mean gamma of the last batch, and that it collapsed where it did."""
    last = spread_text([run.last["objective/gamma_mean"] for run in runs])
    collapsed = sum(bool(run.last["objective/gamma_collapsed"]) for run in runs)
    return f"{last}, collapsed in {collapsed} of {len(runs)}" if collapsed else last


def bandwidth(setting: Setting, shelf: Shelf) -> Findings:
    """Return what the kernel's width does to calibration."""
    runs = {w: shelf.runs(sweeps.of_width(setting, w)) for w in sweeps.widths(setting)}
    found = {width: tested(of) for width, of in runs.items() if of}
    rows = tuple(
        (width, str(len(of)), *figures(of), gamma(runs[width])) for width, of in found.items() if of
    )
    table = Table("Bandwidth of SECE", ("bandwidth", *HEADER), rows, NOTE)
    errors = [mean(of, "ece") for of in found.values() if of]
    said = f"ECE {100 * min(errors):.2f} to {100 * max(errors):.2f} points" if errors else "not run"
    claim = Claim(f"ECE over {len(errors)} bandwidths, .001 to 1", said, "not reported", None,
                  "reported only: the paper uses .01 and asks the question")  # fmt: skip
    return Findings([claim], [table], {w: [s._asdict() for s in of] for w, of in found.items()})


def features(setting: Setting, shelf: Shelf) -> Findings:
    """Return how gamma-net does when its features are replaced."""
    runs = {feed: shelf.runs(sweeps.fed(setting, feed)) for feed in sweeps.FEEDS}
    found = {feed: tested(of) for feed, of in runs.items()}
    rows = tuple(
        (feed, str(len(of)), *figures(of), gamma(runs[feed])) for feed, of in found.items() if of
    )
    table = Table("What gamma-net reads", ("features", *HEADER), rows, NOTE)
    return Findings(feature_claims(setting, found), [table],
                    {f: [s._asdict() for s in of] for f, of in found.items()})  # fmt: skip


def feature_claims(setting: Setting, found: dict) -> list[Claim]:
    """Judge: the network's own features leave it better calibrated than noise does."""
    says = "gamma-net needs its features: ECE lower than with noise in their place"
    own, noise = found["penultimate"], found["noise"]
    if not own or not noise:
        return unrun(says)
    a, b = ([100 * s.ece for s in of] for of in (own, noise))
    text = f"{spread_text(a)} : {spread_text(b)} points (n = {len(a)} : {len(b)})"
    elsewhere = "judged on CIFAR-10 only" if setting.quick else ""
    missing = lacking(len(a) + len(b), 2 * len(sweeps.seeds(setting, several=False)))
    return [judged(says, text, "not reported", np.mean(a) < np.mean(b), "", elsewhere, missing)]
