"""The page of `toosure evaluate`: the verdict, two figures, every metric, every class."""

from collections.abc import Sequence
from html import escape

from toosure.evaluate import Estimate, Evaluation
from toosure.evaluate.class_gaps import MIN_GAP
from toosure.evaluate.class_one import OF_CLASS_ONE
from toosure.evaluate.subgroups import Subgroups
from toosure.evaluate.verdict import verdict
from toosure.figures import confidence_histogram, probability_wording, reliability_diagram
from toosure.page.class_table import class_table
from toosure.page.html import figure, page, prose, section, tiles
from toosure.page.number_text import printed
from toosure.page.reliability_pair import marks_note
from toosure.page.subgroup_table import subgroup_table
from toosure.page.tables import table
from toosure.quantities import QUANTITIES, evaluation_groups, shown_in

MIN_SAVED = 0.01  # of the NLL; what a temperature saves below that is not mentioned


def evaluation_page(result: Evaluation, by: Subgroups | None = None) -> str:
    """Return the self-contained page of an evaluation, with its subgroups if there are some."""
    sentence = verdict(result).sentence
    blocks = [
        headline(result, by),
        tiles(key_numbers(result)),
        figures(result),
        subgroup_table(by) if by else "",
        metrics_tables(result),
        class_table(result) if result.per_class else "",
        footer(result),
    ]
    return page(f"{sentence} – {source_name(result)}", "\n".join(blocks))


def source_name(result: Evaluation) -> str:
    """Return the source of the predictions."""
    return result.source or "predictions in memory"


def headline(result: Evaluation, by: Subgroups | None = None) -> str:
    """Return the verdict and what it rests on."""
    judged = verdict(result)
    return verdict_header(source_name(result), *judged, what_next(result, judged.kind, by))


def what_next(result: Evaluation, kind: str, by: Subgroups | None = None) -> str:
    """Return what to do about a verdict; empty where its reasons say it."""
    if kind == "fine":
        if by and any(group.kind in ("over", "under") for group in by.groups):
            return f"Right for all rows together; some groups by {by.column!r} are off: see below."
        return "Use the probabilities as they are, on data like these."
    if kind == "unclear":
        return ""

    if result.classes is None:  # a calibrator refuses confidences alone
        return (
            "Keep the probability of every class: `toosure calibrate VAL TEST` needs them to fit "
            "a calibrator."
        )
    if kind == "uneven":
        return (
            "See below where it errs; a calibrator of several numbers, as "
            "`toosure calibrate --method vector`, may mend it."
        )
    if result.class_one:
        return "`toosure calibrate VAL TEST --method platt` moves P(class 1), and judges it."
    fits = "`toosure calibrate VAL TEST` fits a calibrator on other rows, and judges it"
    saved, nll = (result.metrics.get(key) for key in ("nll_calibration", "nll"))
    if saved is None or nll is None or not saved.value >= MIN_SAVED * nll.value:
        return f"{fits}."
    return (
        f"A temperature would take up to {saved.value:.2f} off its NLL of {nll.value:.2f}: {fits}."
    )


def verdict_header(
    source: str, kind: str, sentence: str, reasons: Sequence[str], following: str = ""
) -> str:
    """Return the head of a page: a verdict in the colour of its kind, its reasons, what next."""
    tone = kind if kind in ("over", "under", "fine") else ""
    backing = "".join(f"<p>{prose(reason)}</p>" for reason in reasons)
    if following:
        backing += f'<ul class="next" aria-label="what next"><li>{prose(following)}</li></ul>'
    return (
        f'<header><p class="source">toosure · evaluation of {escape(source)}</p>'
        f'<h1><span class="{tone}">{escape(sentence)}</span></h1>{backing}</header>'
    )


def key_numbers(result: Evaluation) -> list[tuple[str, str, str]]:
    """Return the numbers to show first: name, value, interval."""
    numbers = []
    for q in shown_in("tile"):
        if q.key not in result.metrics:
            continue
        estimate = result.metrics[q.key]
        digits = 3 if q.scale == 1 else 1
        value = printed(q.scale * estimate.value, f".{digits}f")
        value += " %" if q.unit == "%" else ""
        name = q.short if q.unit == "%" else q.heading
        numbers.append((name, value, interval(estimate, q.scale, digits)))

    claimed = percent(result.frequency + result.gap.value)
    if result.class_one:
        true = f"class 1 true in {percent(result.frequency)}"
        numbers.insert(1, ("mean P(class 1)", claimed, true))
    else:
        numbers.insert(1, ("mean confidence", claimed, "claimed"))
    return [*numbers, ("samples", f"{result.n:,}", sample_note(result))]


def sample_note(result: Evaluation) -> str:
    """Return the note below the number of samples: their groups, or how many classes."""
    if result.groups is not None:
        return f"of {result.groups:,} {result.group_name}s"
    if result.class_one:
        return "binary"
    return "confidences only" if result.classes is None else f"{result.classes:,} classes"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def interval(estimate: Estimate, scale: float, digits: int) -> str:
    """Return "low to high", or nothing without an interval."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{scale * estimate.low:.{digits}f} to {scale * estimate.high:.{digits}f}"


def figures(result: Evaluation) -> str:
    """Return the reliability diagram and the confidence histogram, side by side."""
    marks = f"{marks_note(result.bins, result.level)}{whisker_note(result)}."
    if result.class_one:
        return class_one_figures(result, marks)

    diagram = figure(
        reliability_diagram(result.table, result.level),
        "Accuracy at each confidence",
        f"{marks} Below the dashed line the model is too sure.",
    )
    histogram = figure(
        confidence_histogram(result.table),
        "How often it is how sure",
        "Samples by confidence, right and wrong. Calibrated, the two lines coincide.",
    )
    return f'<div class="pair">{diagram}{histogram}</div>'


def whisker_note(result: Evaluation) -> str:
    """Note that the whiskers assume independent rows, if rows come in groups."""
    return "" if result.groups is None else ", as if rows were independent"


def class_one_figures(result: Evaluation, marks: str) -> str:
    """Return the diagram and the histogram of P(class 1)."""
    wording = probability_wording("class 1")
    diagram = figure(
        reliability_diagram(result.table, result.level, wording),
        "How often class 1 is true at each P(class 1)",
        f"P(class 1) against the frequency of class 1, not the confidence of the predicted class. "
        f"{marks} Below the dashed line P(class 1) is too high.",
    )

    histogram = figure(
        confidence_histogram(result.table, wording),
        "How often P(class 1) is how high",
        "Samples by P(class 1), those of class 1 and the others. Calibrated, the two lines "
        "coincide.",
    )
    return f'<div class="pair">{diagram}{histogram}</div>'


def metrics_tables(result: Evaluation) -> str:
    """Return every metric with its interval, one table per group."""
    edges = "(a, b]" if result.edge == "right" else "[a, b)"
    level = f"{100 * result.level:g} %"
    note = f"{result.n:,} samples, {result.bins} bins {edges}, low and high of {level} intervals."
    note = " ".join(filter(None, [note, *kind_notes(result), result.infinite, *result.omissions()]))
    groups = "".join(group_table(*group, result) for group in evaluation_groups().items())
    return section("Every metric", note, f'<div class="pair tables">{groups}</div>')


def kind_notes(result: Evaluation) -> list[str]:
    """Note what the numbers are of, if not of the predicted class of independent rows."""
    notes = []
    if result.class_one:
        of_class_one = ", ".join(key for key in OF_CLASS_ONE if key in result.metrics)
        notes.append(
            f"Of P(class 1): {of_class_one}; the rest is of both classes or of the predicted one."
        )

    if result.class_one and "brier" in result.metrics:
        brier = result.metrics["brier"].value / 2
        notes.append(
            f"The Brier score is summed over both classes; of P(class 1) alone it is {brier:.4f}."
        )
    if result.groups is not None:
        notes.append(f"Intervals resample whole {result.group_name}s, {result.groups:,} of them.")
    return notes


def group_table(title: str, names: tuple[str, ...], result: Evaluation) -> str:
    """Return the metrics of one group."""
    present = [name for name in names if name in result.metrics]
    rows = [((name, QUANTITIES[name].says), *result.metrics[name]) for name in present]
    if not rows:
        return ""
    return f"<div>{table((title, 'value', 'low', 'high'), rows, ('', *['.4f'] * 3))}</div>"


def footer(result: Evaluation) -> str:
    """Return how the verdict is reached."""
    if result.class_one:
        return class_one_footer(result)
    return (
        "<footer><p>The gap is mean confidence minus accuracy. The model is called over- or "
        f"under-confident when the {100 * result.level:g} % interval of the gap leaves "
        "out 0; right on average, but not at every confidence, when only the ECE is above what "
        "chance gives; well calibrated when the gap "
        "is known to one point or better; otherwise it cannot be told. What chance gives is the "
        f"ECE of labels drawn from the model’s own confidences.{class_rule(result)}</p></footer>"
    )


def class_rule(result: Evaluation) -> str:
    """Return when a predicted class is named."""
    if result.class_gaps is None:
        return ""
    return (
        " A predicted class is named when it is wrong more or less often than rows of the same "
        "confidence in all classes, beyond what chance gives any of so many, and when its gap is "
        f"{100 * MIN_GAP:g} points or more, with an interval that leaves out 0."
    )


def class_one_footer(result: Evaluation) -> str:
    """Return how the verdict on a binary model is reached."""
    return (
        "<footer><p>Two gaps are judged: mean P(class 1) minus the frequency of class 1, and mean "
        "confidence of the predicted class minus accuracy. Of those whose "
        f"{100 * result.level:g} % interval leaves out 0 the larger one is named: P(class 1) too "
        "high or too low, or the model over- or under-confident. Uneven when only the ECE of "
        "P(class 1) is above what chance gives.</p></footer>"
    )
