"""The page of `toosure calibrate`: before and after, and how it was chosen."""

from html import escape

from toosure.evaluate.estimates import Estimate
from toosure.evaluate.recalibrated import Recalibration
from toosure.page.html import page, prose, section, tiles
from toosure.page.number_text import printed
from toosure.page.reliability_pair import reliability_pair
from toosure.page.tables import table
from toosure.quantities import QUANTITIES, shown_in


def calibration_page(result: Recalibration) -> str:
    """Return the self-contained page of a recalibration."""
    note = result.choice.calibrator.note
    remark = f"<p>{prose(note)}.</p>" if note else ""
    tone = "fine" if direction(result.change) < 0 and direction(result.ece_change) <= 0 else ""

    name = result.source or "predictions in memory"
    header = (
        f'<header><p class="source">toosure · calibration of {escape(name)}</p>'
        f'<h1><span class="{tone}">{escape(headline(result))}</span></h1>'
        f"<p>{prose(result.sentence)}.</p>"
        f"<p>{prose(f'Judged on {result.held_out}: none of them was in the fit.')}</p>{remark}"
        "</header>"
    )

    diagrams = reliability_pair(
        ("Before", result.before.table),
        ("After", result.after.table),
        result.bins,
        result.level,
        result.class_one,
    )

    blocks = [
        header,
        tiles(key_numbers(result)),
        diagrams,
        metrics_table(result),
        trials_table(result),
    ]
    return page(f"{headline(result)} – {name}", "\n".join(blocks))


def headline(result: Recalibration) -> str:
    """Return the title: what was chosen, the ECE before and after, and whether that is chance."""
    before, after = (100 * side.metrics["ece"].value for side in (result.before, result.after))
    if result.choice.name == "uncalibrated":
        return f"No calibrator helps: ECE {before:.1f} points as it is"

    verdict = {-1: "better", 0: "no more than chance", 1: "worse"}[direction(result.ece_change)]
    return f"{result.choice.name}: ECE {before:.1f} points before, {after:.1f} after: {verdict}"


def direction(change: Estimate) -> int:
    """Return -1 for a fall and 1 for a rise that is more than chance, else 0."""
    if change.low is None or change.high is None:
        return 0
    return -1 if change.high < 0 else int(change.low > 0)


def key_numbers(result: Recalibration) -> list[tuple[str, str, str]]:
    """Return the numbers to show first, after and before."""
    numbers = []
    for q in shown_in("tile"):
        form = ".4f" if q.scale == 1 else ".2f"
        after = q.scale * result.after.metrics[q.key].value
        before = q.scale * result.before.metrics[q.key].value
        numbers.append((q.heading, printed(after, form), f"{printed(before, form)} before"))
    return numbers


def metrics_table(result: Recalibration) -> str:
    """Return every metric before and after, with intervals."""
    rows = [
        ((name, QUANTITIES[name].says), *before, *result.after.metrics[name])
        for name, before in result.before.metrics.items()
    ]
    header = ("metric", "before", "low", "high", "after", "low", "high")
    note = f"{result.n:,} samples, {result.bins} bins (a, b], {100 * result.level:g} % intervals."
    if result.class_one:
        note += " ece and adaptive_ece are of P(class 1); brier is summed over both classes."
    note = f"{note} {result.omissions}".strip()
    return section("Before and after", note, table(header, rows, ("", *[".4f"] * 6)))


def trials_table(result: Recalibration) -> str:
    """Return how each calibrator did on the rows held out of its fit."""
    rows = [
        ((trial.name, trial.note), trial.nll, trial.change, trial.error)
        for trial in result.choice.trials
    ]
    note = (
        f"Each was fitted {result.choice.folds} times on {result.rows:,} rows less one fold and "
        "measured on that fold; change is against no calibration, paired by row, with its "
        "standard error. The lowest NLL is taken and fitted again on all rows."
    )
    header = ("method", "NLL held out", "change", "standard error")
    return section("How it was chosen", note, table(header, rows, ("", ".4f", "+.4f", ".4f")))
