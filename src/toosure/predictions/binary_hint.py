"""Name at once all the options that a table of a binary classifier needs."""

import shlex
from dataclasses import replace

import numpy as np

from toosure.predictions.columns import Columns, is_score
from toosure.predictions.labels import flat
from toosure.predictions.missing_labels import MISSING
from toosure.predictions.options import ReadOptions
from toosure.predictions.spellings import spellings_of, without_fraction
from toosure.predictions.truth_words import BOOLEANS
from toosure.predictions.usual_names import CORRECT, PREDICTED, SCORES, class_of


def binary_options(columns: Columns, options: ReadOptions) -> ReadOptions | None:
    """Return the options for a table with one column of probabilities and one of two labels.

    None where several columns may be either, where labels are missing or not needed, or where
    `--columns` or `--classes` would take a name apart at its comma. Of several columns of labels,
    one that holds the class of the score's name is taken. Class 1 is that class, or the label whose
    rows have the higher probabilities: a guess.

    >>> risk, sick = np.array([0.1, 0.9, 0.8]), np.array(["no", "ill", "ill"])
    >>> table = {"risk": risk, "age": np.array([1, 2, 3]), "state": sick}
    >>> as_typed(binary_options(table, ReadOptions()))
    "if 'risk' is the probability of ill: --label-column state --columns risk --classes no,ill"
    """
    if options.unlabelled and not options.label:
        return None
    scores = [options.columns[0]] if len(options.columns) == 1 else probability_columns(columns)
    labels = [options.label] if options.label else two_valued_columns(columns, options.groups)
    if len(scores) == 1 and len(labels) > 1:
        own = class_of(scores[0])  # of p_malignant, malignant
        labels = [name for name in labels if own in columns[name].astype(str)]
    if len(scores) != 1 or len(labels) != 1 or {scores[0], labels[0]} - set(columns):
        return None
    score, label = scores[0], labels[0]

    if is_score(columns[label]):
        return None
    spelled = np.array([without_fraction(text) for text in spellings_of(flat(columns[label]))])
    classes = np.unique(spelled).tolist()
    words = {name.lower() for name in classes}
    if len(classes) != 2 or score not in probability_columns(columns) or words & set(MISSING):
        return None
    if any("," in name for name in (score, *classes)):
        return None

    asked = replace(options, label=label, columns=(score,))
    own = class_of(score)
    truths = {BOOLEANS.get(word) for word in words}
    if truths == {True, False} and BOOLEANS.get(own.lower(), True):  # 0 and 1, no and yes
        return asked
    means = [float(np.mean(columns[score][spelled == name])) for name in classes]
    zero, one = classes if means[0] <= means[1] else reversed(classes)
    if zero == own:
        zero, one = one, zero
    return replace(asked, classes=(zero, one))


def as_typed(options: ReadOptions) -> str:
    """Return the options of a binary table as they are typed, and what they mean."""
    words = shlex.join(["--label-column", options.label or "", "--columns", *options.columns])
    one = "class 1"
    if options.classes:
        one = options.classes[1]
        equals = "=" if options.classes[0].startswith("-") else " "
        words += f" --classes{equals}{shlex.quote(','.join(options.classes))}"
    return f"if {options.columns[0]!r} is the probability of {one}: {words}"


def probability_columns(columns: Columns) -> list[str]:
    """Return the columns of numbers in [0, 1], but not confidences and hits."""
    others = (*CORRECT, *SCORES["confidence"])
    return [
        name
        for name, values in columns.items()
        if values.ndim == 1 and len(values) and name.lower() not in others
        if is_score(values) and values.min() >= 0 and values.max() <= 1
    ]


def two_valued_columns(columns: Columns, groups: str | None) -> list[str]:
    """Return the columns that hold two different values, beside those that are missing."""
    return [
        name
        for name, values in columns.items()
        if values.ndim == 1 and name != groups and name.lower() not in PREDICTED
        if len({text.lower() for text in np.unique(values.astype(str))} - set(MISSING)) == 2
    ]
