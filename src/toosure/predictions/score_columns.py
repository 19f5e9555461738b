"""Which columns of a table hold scores: as asked, by prefix, by a usual name, or all numbers."""

import numpy as np

from toosure.metrics.distributions import distribution_problem
from toosure.predictions.columns import Columns, check_damaged, is_numbers, is_score, stacked
from toosure.predictions.labels import flat
from toosure.predictions.options import ReadOptions
from toosure.predictions.predictions import Kind
from toosure.predictions.spellings import without_fraction
from toosure.predictions.usual_names import (
    CORRECT,
    SCORES,
    UNTOLD_SCORES,
    Models,
    class_of,
    expand,
    is_other,
    listed_columns,
    pick,
    possible_models,
    with_prefix,
)


def score_columns(columns: Columns, label: str | None, options: ReadOptions) -> list[str]:
    """Return the columns that hold scores; raise with a hint how to name them."""
    chosen = score_columns_or_none(columns, label, options)
    if chosen is None:
        for group in with_prefix(possible_scores(columns, label, options)).values():
            if any(holds_digits(columns[name]) for name in group):
                stacked(columns, group)  # raises on a cell that is not a number, such as 50%
        remedy = "say which hold probabilities or logits, --columns NAME,NAME"
        if any(name.lower() in SCORES["confidence"] for name in columns):
            remedy += "; confidences need a column 'correct', 1 where the prediction was right"
        raise ValueError(f"no column of a class; it holds only {listed_columns(columns)}: {remedy}")

    if not options.columns and len(options.classes) != len(chosen):
        check_one_model(columns, chosen, label)
    return chosen


def check_one_model(columns: Columns, chosen: list[str], label: str | None) -> None:
    """Refuse the scores of several models side by side."""
    labels = spellings(columns, label)
    if labels & {class_of(name) for name in chosen} or sum_to_one(columns, chosen):
        return

    # Several models, where each has distributions of its own, or else the labels are its classes.
    possible = possible_models(chosen)
    fitting = [models for models in possible if each_sums_to_one(columns, models)]
    if not fitting:
        fitting = [models for models in possible if are_classes(labels, models)]
    if fitting:
        counts = " or ".join(sorted({str(len(models)) for models in fitting}))
        choices = " or ".join(f"--columns '{model}'" for models in fitting for model in models)
        raise ValueError(
            f"columns {listed_columns(chosen)} look like the scores of {counts} models: "
            f"say which to read, {choices}"
        )


def each_sums_to_one(columns: Columns, models: Models) -> bool:
    """Whether the columns of each of several models hold probabilities."""
    return all(sum_to_one(columns, list(own.values())) for own in models.values())


def are_classes(labels: set[str], models: Models) -> bool:
    """Whether there are labels, and all name or number the classes of several models."""
    names = next(iter(models.values()))
    classes = {*names, *map(str, range(len(names)))}
    return bool(labels) and {without_fraction(label) for label in labels} <= classes


def possible_scores(columns: Columns, label: str | None, options: ReadOptions) -> list[str]:
    """Return the columns that are neither labels nor groups."""
    return [name for name in columns if name not in (label, options.groups)]


def holds_digits(column: np.ndarray) -> bool:
    """Whether a column begins as one of numbers: with a digit in most of its first cells."""
    cells = [str(cell) for cell in column[:20]]
    return 2 * sum(any(map(str.isdigit, cell)) for cell in cells) > len(cells)


def score_columns_or_none(
    columns: Columns, label: str | None, options: ReadOptions
) -> list[str] | None:
    """Return the columns that hold scores: as asked, by prefix or label, by a usual name, or all.

    All are columns of numbers.
    """
    names = possible_scores(columns, label, options)
    if options.columns:
        return expand(options.columns, names)

    groups = [group for prefix, group in with_prefix(names).items() if fits(prefix, options.kind)]
    groups = [group for group in groups if all(is_numbers(columns[name]) for name in group)]
    if len(groups) > 1:
        groups = distributions_among(columns, groups)
    if len(groups) == 1:
        return groups[0]
    if len(groups) > 1:
        choices = " or ".join(f"--columns {','.join(group[:2])},..." for group in groups)
        raise ValueError(
            f"{listed_columns(g[0] for g in groups)} may all begin the scores: say {choices}"
        )

    if of_labels := columns_of_labels(columns, names, label, options):
        return of_labels
    known = SCORES[options.kind] if options.kind else (*SCORES["logits"], *SCORES["probs"])
    named = pick(names, known, "scores", "--columns")
    if named is None:
        scores = [name for name in names if is_score(columns[name])]
        named = pick(scores, UNTOLD_SCORES, "scores", "--columns")
    if named is not None and not mixed_with_classes(columns, names, named):
        return [named]
    return bare_columns(columns, names, label, options)


def mixed_with_classes(columns: Columns, names: list[str], named: str) -> bool:
    """Whether a column of a usual name is one class among others: all numbers then sum to 1."""
    numeric = [name for name in names if is_numbers(columns[name]) and not is_other(name)]
    if columns[named].ndim > 1 or len(numeric) < 3:
        return False
    return sum_to_one(columns, numeric)


def bare_columns(
    columns: Columns, names: list[str], label: str | None, options: ReadOptions
) -> list[str] | None:
    """Return the class columns of a table whose columns are named like the classes."""
    for name in names:
        check_damaged(columns[name], name)
    numeric = [name for name in names if not is_other(name) and is_numbers(columns[name])]
    numeric = [n for n in numeric if n.lower() not in (*CORRECT, *SCORES["confidence"])]
    spelled = spellings(columns, label)

    # Only the columns that may be probabilities, where these sum to 1.
    possible = [name for name in numeric if 0 <= columns[name].min() <= columns[name].max() <= 1]
    if 1 < len(possible) < len(numeric) and sum_to_one(columns, possible):
        return possible
    if len(numeric) == 1 and class_of(numeric[0]) not in (spelled - {numeric[0]}):
        beside = f", beside the label {label!r}" if label else ""
        raise ValueError(
            f"one column of numbers, {numeric[0]!r}{beside}: if it is the probability or the "
            f"logit of class 1, say --columns {numeric[0]}"
        )
    check_strangers(columns, numeric, spelled)
    if options.kind != "probs":
        check_counts(columns, numeric)
    return numeric or None


def columns_of_labels(
    columns: Columns, names: list[str], label: str | None, options: ReadOptions
) -> list[str]:
    """Return the columns that --classes names, or that labels name if these sum to 1; else none."""
    classes = options.classes or spellings(columns, label)
    named = [name for name in names if name in classes and is_numbers(columns[name])]
    if len(named) < 2:
        return []
    all_classes = len(named) == len(options.classes)
    return named if all_classes or sum_to_one(columns, named) else []


def sum_to_one(columns: Columns, names: list[str]) -> bool:
    """Whether columns hold probabilities."""
    return distribution_problem(stacked(columns, names)) is None


def spellings(columns: Columns, label: str | None) -> set[str]:
    """Return the labels that occur, as text; none if there is no column of them."""
    if label is None:
        return set()
    return set(np.char.strip(np.unique(flat(columns[label]).astype(str))).tolist())


def check_strangers(columns: Columns, numeric: list[str], labels: set[str]) -> None:
    """Refuse a column that is no label beside columns that are: a brightness is not a logit.

    Beside labels 0 and 1, a column 2 is a class that occurs in no row.
    """
    own = [name for name in numeric if class_of(name) in labels]
    if own and all(class_of(name).isdecimal() for name in own):  # as 2, which occurs in no row
        own = [name for name in numeric if name in own or class_of(name).isdecimal()]
    strangers = [name for name in numeric if name not in own]
    if not strangers or len(own) < 2 or sum_to_one(columns, numeric):
        return
    raise ValueError(
        f"column {strangers[0]!r} is none of the labels {listed_columns(own)}: if it is a class "
        f"that occurs in no row, say --columns {','.join(numeric)}; else --columns {','.join(own)}"
    )


def check_counts(columns: Columns, numeric: list[str]) -> None:
    """Refuse a column of whole numbers among others that are not: an age is not a logit."""
    whole = [n for n in numeric if len(columns[n]) and (columns[n] == np.rint(columns[n])).all()]
    others = [name for name in numeric if name not in whole]
    if whole and len(others) > 1 and len(columns[numeric[0]]) > 2:
        raise ValueError(
            f"column {whole[0]!r} holds whole numbers and may be no class: say which columns are, "
            f"--columns {','.join(others)}"
        )


def fits(prefix: str, kind: Kind | None) -> bool:
    """Whether columns of a prefix may be scores of a kind."""
    if kind is None:
        return True
    return ("logit" in prefix) == (kind == "logits") or prefix in ("score", "scores", "output")


def distributions_among(columns: Columns, groups: list[list[str]]) -> list[list[str]]:
    """Of several groups of columns, keep the one that alone holds probabilities."""
    distributions = [group for group in groups if sum_to_one(columns, group)]
    return distributions if len(distributions) == 1 else groups
