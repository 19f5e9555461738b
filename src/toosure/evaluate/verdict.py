"""The verdict on an evaluation: one sentence first, then its reasons."""

import math

from toosure.evaluate import Estimate, Evaluation
from toosure.evaluate.class_one import class_one_means, judge_class_one
from toosure.evaluate.class_verdict import with_classes
from toosure.verdicts import MAX_HALF_WIDTH, Verdict, judge_gap, plural, signed


def verdict(result: Evaluation) -> Verdict:
    """Judge the gap, mean confidence minus accuracy, then the ECE against chance.

    Over- or under-confident if the gap's interval leaves out 0. If not: uneven if the ECE lies
    above the interval that a calibrated model shows by chance; well calibrated if the gap is known
    to a point or better; otherwise unclear. In all four cases predicted classes that are wrong
    beyond chance are named. A binary model is judged by its two gaps instead.
    """
    gap = result.gap
    beyond = result.metrics["ece"].value > result.chance.ends[1]
    if result.class_one:
        kind, sentence = judge_class_one(result, beyond)
        reasons = (*class_one_means(result), ece_sentence(result, beyond), *result.notes)
        samples = samples_needed(result) if kind == "unclear" else ()
        return Verdict(kind, sentence, (*reasons, *samples))

    of_all = judge_gap(gap.value, *gap.ends, result.n, uneven=beyond)
    (kind, sentence), of_classes = with_classes(of_all, gap.value, result.class_gaps)
    reasons = (
        gap_sentence(result),
        ece_sentence(result, beyond),
        *result.notes,
        *of_classes,
        *samples_needed(result),
    )
    return Verdict(kind, sentence, reasons)


def gap_sentence(result: Evaluation) -> str:
    """Compare mean confidence and accuracy."""
    accuracy = result.metrics["accuracy"].value
    gap = result.gap
    confidence = 100 * (accuracy + gap.value)
    low, high = gap.ends
    return (
        f"It claims {confidence:.1f} % on average and is right in {100 * accuracy:.1f} % of "
        f"{result.n:,} {plural(result.n, 'sample')}: a gap of {signed(gap.value)} points "
        f"({100 * result.level:g} % interval {signed(low)} to {signed(high)})."
    )


def ece_sentence(result: Evaluation, beyond: bool) -> str:
    """Compare the ECE with the one that a perfectly calibrated model would show at this n."""
    ece = result.metrics["ece"]
    chance = result.chance
    here = f"The ECE is {100 * ece.value:.1f} points ({span(ece)})"
    expected = f"a perfectly calibrated model would show {span(chance)} at this n, by chance"
    if beyond:
        return f"{here}; {expected}."
    return f"{here}; {expected}, so the ECE alone does not show a fault."


def samples_needed(result: Evaluation) -> tuple[str, ...]:
    """Return a sentence with the number of samples that would settle an open question."""
    half = result.gap.half
    low, high = result.gap.ends
    if low > 0 or high < 0 or half <= MAX_HALF_WIDTH:
        return ()
    samples = result.n * (half / MAX_HALF_WIDTH) ** 2
    digits = 10 ** max(0, math.floor(math.log10(samples)) - 1)
    return (
        f"About {math.ceil(samples / digits) * digits:,} samples would pin the gap to ± 1 point.",
    )


def span(estimate: Estimate) -> str:
    """Return an interval in points."""
    low, high = estimate.ends
    return f"{100 * low:.1f} to {100 * high:.1f}"
