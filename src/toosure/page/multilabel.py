"""The page of independent labels: the verdict, all labels pooled, and every label."""

from toosure.evaluate import LabelRow, MultilabelEvaluation
from toosure.figures import confidence_histogram, probability_wording, reliability_diagram
from toosure.page.evaluation import interval, verdict_header
from toosure.page.html import figure, page, section, tiles
from toosure.page.tables import table

MEASURES = {"ece": "ECE", "smece": "smECE", "brier": "Brier score", "nll": "NLL"}


def multilabel_page(result: MultilabelEvaluation) -> str:
    """Return the self-contained page of an evaluation of independent labels."""
    source = result.source or "independent labels"
    blocks = [
        verdict_header(source, result.verdict.kind, *headline_and_reasons(result)),
        tiles(key_numbers(result)),
        figures(result),
        label_table(result),
    ]
    return page(f"{result.verdict.sentence} – {source}", "\n".join(blocks))


def headline_and_reasons(result: MultilabelEvaluation) -> tuple[str, tuple[str, ...]]:
    """Return how many labels are miscalibrated as the headline; which, as the first reason."""
    _, sentence, reasons = result.verdict
    count, _, named = sentence.partition(": ")
    return count, (f"{named[:1].upper()}{named[1:]}.", *reasons) if named else reasons


def key_numbers(result: MultilabelEvaluation) -> list[tuple[str, str, str]]:
    """Return the numbers to show first: name, value, interval."""
    gap = result.pooled["gap"]
    numbers = [("pooled gap, points", f"{100 * gap.value:+.2f}", interval(gap, 100, 2))]
    for key, name in MEASURES.items():
        estimate = result.pooled[key]
        scale, heading = (100, f"{name}, points") if key in ("ece", "smece") else (1, name)
        digits = 2 if scale == 100 else 4
        value = f"{scale * estimate.value:.{digits}f}"
        numbers.append((heading, value, interval(estimate, scale, digits)))

    faulty = f"{len(result.worst)} of {len(result.labels)}"
    return [*numbers, ("labels beyond chance", faulty, f"{result.n:,} rows")]


def figures(result: MultilabelEvaluation) -> str:
    """Return the diagram and the histogram of all labels pooled."""
    wording = probability_wording("label")
    diagram = figure(
        reliability_diagram(result.table, result.level, wording),
        "How often a label is true at each probability",
        f"All labels pooled. A mark for each of {result.bins} bins; whiskers are "
        f"{100 * result.level:g} % intervals, as if entries were independent. Below the dashed "
        "line probabilities are too high.",
    )

    histogram = figure(
        confidence_histogram(result.table, wording),
        "How often a probability is how high",
        "Entries by probability, those that are true and the others.",
    )
    return f'<div class="pair">{diagram}{histogram}</div>'


def label_table(result: MultilabelEvaluation) -> str:
    """Return one row per label, those with a fault first; a press on a heading sorts."""
    faulty = {row.name for row in result.worst}
    rest = sorted((row for row in result.labels if row.name not in faulty), key=by_ece)
    rows = [cells(row) for row in (*result.worst, *rest)]
    header = (
        "label",
        "beyond chance",
        "samples",
        "frequency",
        "mean p",
        "gap",
        "ECE",
        "low",
        "high",
        "smECE",
        "Brier",
        "NLL",
        "adjusted",
    )

    formats = ("", "", ",", ".1f", ".1f", "+.2f", ".2f", ".2f", ".2f", ".2f", ".4f", ".4f", ".3f")
    note = (
        "Each label on its own: how often it is true and its mean probability p in %, their "
        "difference (gap), ECE with its interval and smECE in points. The last column is the "
        "chance of so large a gap or ECE in any of the labels, were all of them calibrated. Press "
        "a heading to sort."
    )
    return section("Every label", note, table(header, rows, formats, True))


def by_ece(row: LabelRow) -> float:
    return -row.ece.value


def cells(row: LabelRow) -> tuple[str | float | int | None, ...]:
    """Return the cells of one label."""
    low, high = row.ece.low, row.ece.high
    return (
        row.name,
        row.fault,
        row.samples,
        100 * row.frequency,
        100 * row.probability,
        100 * row.gap.value,
        100 * row.ece.value,
        None if low is None else 100 * low,
        None if high is None else 100 * high,
        100 * row.smece.value,
        row.brier.value,
        row.nll.value,
        row.adjusted_p,
    )
