"""Class columns whose names differ by one whole number: it says the class, whatever their order."""

from collections.abc import Sequence
from string import digits

from toosure.predictions.options import ReadOptions
from toosure.predictions.truth_words import BOOLEANS
from toosure.predictions.usual_names import class_of, listed_columns, shared_start

MAX_DIGITS = 18  # of an integer that fits into 64 bits


def numbers_within(names: Sequence[str]) -> list[int] | None:
    """Return the whole number in each name, if all is alike before and after it; else None.

    >>> numbers_within(["q10.prob", "q9.prob"]), numbers_within(["p2_1", "p2_0"])
    ([10, 9], [1, 0])
    >>> numbers_within(["cat", "dog"])
    """
    before = shared_start(names).rstrip(digits)
    rest = [name[len(before) :] for name in names]
    after = shared_start([name[::-1] for name in rest]).rstrip(digits)
    numbers = [name[: len(name) - len(after)] for name in rest]
    if not all(n.isascii() and n.isdecimal() and len(n) <= MAX_DIGITS for n in numbers):
        return None
    return list(map(int, numbers))


def first_number(numbers: Sequence[int]) -> int | None:
    """Return 0 for numbers 0 .. C - 1 in any order, 1 for 1 .. C; None for all others.

    >>> [first_number(numbers) for numbers in ([1, 0, 2], [2, 1], [0, 2], [1, 1])]
    [0, 1, None, None]
    """
    first = min(numbers)
    is_complete = sorted(numbers) == list(range(first, first + len(numbers)))
    return first if is_complete and first in (0, 1) else None


def are_whole(labels: set[str]) -> bool:
    """Whether labels are whole numbers, or words for true and false."""
    return all(label.removeprefix("-").isdecimal() or label.lower() in BOOLEANS for label in labels)


def count_from_zero(labels: set[str]) -> bool:
    """Whether labels number the classes from 0, as 0 and 1, or no and yes."""
    return any(label.lower() in BOOLEANS and label != "1" for label in labels)


def are_among(labels: set[str], numbers: list[int]) -> bool:
    """Whether labels are some of the numbers of classes, each of which has its own."""
    return labels <= set(map(str, numbers)) and len(set(numbers)) == len(numbers)


def names_by_number(names: tuple[str, ...], labels: set[str]) -> tuple[str, ...]:
    """Return the numbers in the names of classes, if whole labels mean these; else the names.

    Classes 1 .. C of labels from 0 keep their names: labels are then their positions. So do
    classes of other numbers, as resnet18 and resnet50, unless all labels are among these.

    >>> names_by_number(("q0", "q1"), {"0", "1"}), names_by_number(("q0", "q1"), {"q0"})
    (('0', '1'), ('q0', 'q1'))
    """
    numbers = numbers_within(names)
    if numbers is None or labels <= set(names) or not are_whole(labels):
        return names
    if first_number(numbers) is None:
        return tuple(map(str, numbers)) if are_among(labels, numbers) else names
    are_bare = all(name.isdecimal() for name in names)
    if first_number(numbers) == 1 and count_from_zero(labels) and not are_bare:
        return names
    return tuple(map(str, numbers))


def in_class_order(chosen: list[str], labels: set[str], options: ReadOptions) -> list[str]:
    """Return columns numbered 0 .. C - 1 or 1 .. C in the order of their numbers.

    Other columns stay in their order. It is refused where labels could be positions and the
    numbers do not rise: nobody then knows which class 2 is. `labels` are empty if there are none.

    >>> in_class_order(["q0", "q1", "q10", *(f"q{k}" for k in range(2, 10))], set(), ReadOptions())
    ['q0', 'q1', 'q2', 'q3', 'q4', 'q5', 'q6', 'q7', 'q8', 'q9', 'q10']
    """
    own = [class_of(name) for name in chosen]
    numbers = numbers_within(own) if len(chosen) > 1 else None
    if numbers is None or numbers == sorted(set(numbers)):
        return chosen

    in_order = [name for _, name in sorted(zip(numbers, chosen, strict=True))]
    are_bare = all(name.isdecimal() for name in own)
    are_names = labels <= set(own)
    is_asked = options.columns == tuple(chosen)
    if options.classes:
        if is_asked or (set(own) == set(options.classes) and (are_bare or are_names)):
            return chosen
        raise ValueError(
            f"{unordered(chosen)}, and --classes goes by their order: say "
            f"{columns_option(in_order)} too, in the order of --classes"
        )

    first = first_number(numbers)
    if first == 0 or (first == 1 and (are_bare or are_names or not count_from_zero(labels))):
        return in_order
    if is_asked or are_bare or are_names or are_among(labels, numbers) or not are_whole(labels):
        return chosen
    found = sorted(labels, key=lambda label: (len(label), label))
    raise ValueError(
        f"{unordered(chosen)}, and labels {listed_columns(found)} are not these numbers: name the "
        f"columns in the order of the labels, from 0 on, as {columns_option(in_order)}"
    )


def unordered(chosen: Sequence[str]) -> str:
    """Begin the error for columns whose numbers do not rise."""
    return f"columns {listed_columns(chosen)} are not in the order of their numbers"


def columns_option(names: Sequence[str]) -> str:
    """Return the option that names columns, the first ones of many."""
    return f"--columns {','.join(names[:3])}{',...' if len(names) > 3 else ''}"
