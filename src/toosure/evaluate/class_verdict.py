"""The part of a verdict that names classes: right on average, and wrong for some classes."""

from toosure.evaluate.class_gaps import MIN_GAP, ClassGap, ClassGaps
from toosure.verdicts import GapVerdict

MAX_NAMED = 5  # classes that a sentence names
# By the kind of the verdict on all rows: the headline that replaces its own, and the beginning of
# the sentence on classes.
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
    """Return the verdict on all rows, corrected for the classes, and the sentence that says why.

    Where no class is miscalibrated (`ClassGap.is_miscalibrated`) the verdict stays, and there is no
    sentence. Otherwise no headline may say that all is well. "Over-confident" or "under-confident"
    stays as it is if all miscalibrated classes err in the same direction, unless the `gap` of all
    rows is hardly worth a word.
    """
    if gaps is None or not gaps.miscalibrated:
        return of_all, ()

    kind, sentence = of_all
    reason = f"{LEADS[kind]}: {named_classes(gaps)}"
    if kind in ("over", "under"):
        misleads = abs(gap) < MIN_GAP or any(
            each.gap.value * gap < 0 for each in gaps.miscalibrated
        )
        ending = " on average, but classes differ" if misleads else ""
        return GapVerdict(kind, sentence + ending), (reason,)
    if kind == "unclear":  # only the average is unclear
        unsure = sentence[:1].lower() + sentence[1:]
        return GapVerdict("uneven", f"Not right for every class; on average, {unsure}"), (reason,)
    return GapVerdict("uneven", HEADLINES[kind]), (reason,)


def named_classes(gaps: ClassGaps) -> str:
    """Name the miscalibrated classes, the largest gap first, with their intervals."""
    off = gaps.miscalibrated
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
    """Return the name of a class, how wrong its confidence is, and the interval of that size."""
    name = class_text(each.name)
    value, low, high = each.gap
    assert low is not None and high is not None
    if value > 0:
        return name, f"over-confident by {100 * value:.1f}", f"{100 * low:.1f} to {100 * high:.1f}"
    return name, f"under-confident by {-100 * value:.1f}", f"{-100 * high:.1f} to {-100 * low:.1f}"


def class_text(name: str) -> str:
    """Return how a sentence calls a class.

    >>> class_text("3"), class_text("cat")
    ('class 3', '`cat`')
    """
    return f"class {name}" if name.isdigit() else f"`{name}`"
