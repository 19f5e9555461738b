"""The part of a verdict on single classes: right on average, and wrong for some of them."""

from toosure.evaluate.class_gaps import MIN_GAP, ClassGap, ClassGaps
from toosure.verdicts import GapVerdict

MAX_NAMED = 5  # classes that a sentence names
# By the kind of the verdict on all rows: a headline in place of its own, and how the sentence on
# classes begins.
HEADLINES = {
    "fine": "Right on average, but not for every class",
    "uneven": "Right on average, but neither at every confidence nor for every class",
}
LEADS = {
    "fine": "On average it is right, class by class it is not",
    "uneven": "On average it is right, class by class it is not",
    "unclear": "Class by class it is not right",
    "over": "Classes differ",
    "under": "Classes differ",
}


def with_classes(
    of_all: GapVerdict, gap: float, gaps: ClassGaps | None
) -> tuple[GapVerdict, tuple[str, ...]]:
    """Return the verdict on all rows as the classes leave it, and the sentence that says why.

    Where no class is off (`ClassGap.is_off`) the verdict stays, and there is no sentence. No
    headline may say that all is well. One that says too sure, or not sure enough, stays where the
    classes that are off are so too: only more. Not where the `gap` of all is hardly worth a word.
    """
    if gaps is None or not gaps.off:
        return of_all, ()

    kind, sentence = of_all
    reason = f"{LEADS[kind]}: {named_classes(gaps)}"
    if kind in ("over", "under"):
        misleads = abs(gap) < MIN_GAP or any(each.gap.value * gap < 0 for each in gaps.off)
        ending = " on average, but classes differ" if misleads else ""
        return GapVerdict(kind, sentence + ending), (reason,)
    if kind == "unclear":  # what cannot be told is of the average
        unsure = sentence[:1].lower() + sentence[1:]
        return GapVerdict("uneven", f"Not right for every class; on average, {unsure}"), (reason,)
    return GapVerdict("uneven", HEADLINES[kind]), (reason,)


def named_classes(gaps: ClassGaps) -> str:
    """Name the classes that are off, the largest gap first, and say what the intervals hold for."""
    off = gaps.off
    named = [described(each) for each in off[:MAX_NAMED]]
    first = (
        f"{named[0][0]} is {named[0][1]} points "
        f"(n = {off[0].n:,}, {100 * gaps.level:g} % interval {named[0][2]})"
    )
    others = [
        f"{name} {fault} (n = {each.n:,}, {span})"
        for each, (name, fault, span) in zip(off[1:MAX_NAMED], named[1:], strict=True)
    ]
    more = f" and {len(off) - MAX_NAMED} more" if len(off) > MAX_NAMED else ""

    count = len(gaps.classes)
    verb = "is" if len(off) == 1 else "are"
    return (
        f"{', '.join([first, *others])}{more}. {len(off)} of {count} predicted classes {verb} off; "
        f"the intervals hold for all {count} together."
    )


def described(each: ClassGap) -> tuple[str, str, str]:
    """Return how a class is called, how wrong its confidence is, and the interval of that size."""
    name = f"class {each.name}" if each.name.isdigit() else f"`{each.name}`"
    value, low, high = each.gap
    assert low is not None and high is not None
    if value > 0:
        return name, f"over-confident by {100 * value:.1f}", f"{100 * low:.1f} to {100 * high:.1f}"
    return name, f"under-confident by {-100 * value:.1f}", f"{-100 * high:.1f} to {-100 * low:.1f}"
