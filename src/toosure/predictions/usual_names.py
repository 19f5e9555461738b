"""Usual names of labels, scores and other columns, and which of them a file means."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from toosure.predictions.predictions import Kind
from toosure.sentences import listed

# Usual names of a column or array, whatever their case. The first one is ours.
LABELS = (
    *("labels", "label", "y_true", "target", "targets", "true_label", "true_labels"),
    *("ground_truth", "true_class", "y_test", "y_val"),
)
# Names that may mean something else: labels only if no other name is there.
WEAK_LABELS = ("y", "truth", "gt", "actual", "class", "outcome", "gold")
SCORES: dict[Kind, tuple[str, ...]] = {
    "logits": ("logits", "logit", "log_probs", "logprobs", "log_prob"),
    "probs": (
        *("probs", "prob", "proba", "probas", "probabilities", "probability", "y_prob", "y_probs"),
        *("y_proba", "y_pred_proba", "y_pred_prob", "pred_proba", "pred_prob", "pred_probs"),
        *("predict_proba", "predicted_proba", "predicted_probability", "softmax"),
    ),
    "confidence": ("confidence", "confidences", "conf", "max_prob"),
}
CORRECT = ("correct", "is_correct", "corrects", "hits", "hit")
# Names of scores that do not say which: the values tell.
UNTOLD_SCORES = (
    *("y_score", "y_scores", "scores", "score", "outputs", "output", "y_pred", "y_hat"),
    *("preds", "pred", "predictions", "prediction", "decision_function"),
)
KNOWN = (*LABELS, *WEAK_LABELS, *CORRECT, *UNTOLD_SCORES, *(n for s in SCORES.values() for n in s))
CLASS_NAMES = ("classes", "class_names", "classes_", "target_names")  # of an array file

# Columns of a table that are not scores: predicted classes, and what is about rows.
PREDICTED = (
    *("y_pred", "pred", "preds", "prediction", "predictions", "predicted"),
    *("predicted_label", "predicted_class", "pred_label", "pred_class"),
)
OTHER = (
    *("", "id", "ids", "index", "idx", "row", "uid", "uuid", "name", "file", "filename", "path"),
    *("image", "text", "split", "fold", "weight", "sample_weight", "group", "date", "time"),
    *("timestamp", *PREDICTED),
)
PREFIX = re.compile(
    r"(?i)^(p|prob|probs|proba|probability|pred_proba|y_prob|y_proba|y_pred_proba|logit|logits|"
    r"score|scores|y_score|class|output)(?:[_ .:\-](.+)|(\d+)|[(\[](.+)[)\]])$"
)
MAX_LISTED = 240  # characters of a list of twelve names; of longer ones three are named


def is_other(name: str) -> bool:
    """Whether a column is named as one of row numbers, file names or predicted classes.

    >>> [is_other(name) for name in ("id", "Unnamed: 0", "patient_id", "cat")]
    [True, True, True, False]
    """
    low = name.lower()
    return low in OTHER or low.startswith(("unnamed:", "__index_level_")) or low.endswith("_id")


def any_is_other(names: Iterable[str]) -> bool:
    """Whether one of several columns is named as in `OTHER`; one without a name is not."""
    return any(name and is_other(name) for name in names)


def pick(names: Iterable[str], usual: Sequence[str], what: str, option: str) -> str | None:
    """Return the one of `names` that is usual for `what`; None if there is none.

    Where several are, the user must say which.

    >>> pick(["id", "Target"], LABELS, "labels", "--label-column")
    'Target'
    """
    matching = [name for name in names if name.lower() in usual]
    if len(matching) > 1:
        raise ValueError(
            f"{' and '.join(matching)} may all be {what}: say which with {option} NAME"
        )
    return matching[0] if matching else None


def pick_label(names: Sequence[str], wanted: str | None) -> str | None:
    """Return the column or array of the labels: the one asked for, or one of a usual name."""
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"no column {wanted!r}; it holds {listed_columns(names)}")
        return wanted
    label = pick(names, LABELS, "labels", "--label-column")
    return label or pick(names, WEAK_LABELS, "labels", "--label-column")


def expand(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that `--columns` names; `*` stands for any text.

    >>> expand(["p_*"], ["id", "p_a", "p_b"])
    ['p_a', 'p_b']
    """
    chosen: list[str] = []
    for pattern in patterns:
        if pattern in names:
            matching = [pattern]
        else:
            matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise ValueError(f"no column {pattern!r}; it holds {listed_columns(names)}")
        chosen += [name for name in matching if name not in chosen]
    return chosen


def with_prefix(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns that share a prefix of scores, two or more, by that prefix.

    >>> with_prefix(["id", "p_a", "p_b", "logit_a"])
    {'p': ['p_a', 'p_b']}
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        if (match := PREFIX.match(name)) and not is_other(name) and name.lower() not in KNOWN:
            groups.setdefault(match[1].lower(), []).append(name)
    return {prefix: group for prefix, group in groups.items() if len(group) > 1}


Models = dict[str, dict[str, str]]  # the columns of each model by class, by a pattern of --columns


def possible_models(names: Sequence[str]) -> list[Models]:
    """Return how names may be those of several models with the same classes: before or after `_`.

    >>> possible_models(["a_cat", "a_dog", "b_cat", "b_dog"])[0]["b_*"]
    {'cat': 'b_cat', 'dog': 'b_dog'}
    >>> [list(models) for models in possible_models(["p_cat_x", "p_dog_x", "p_cat_y", "p_dog_y"])]
    [['p_cat_*', 'p_dog_*'], ['*_x', '*_y']]
    """
    start = len(shared_start(names))
    before: Models = {}
    after: Models = {}
    for name in names:
        cut = name.find("_", start) + 1
        before.setdefault(f"{name[:cut]}*", {})[name[cut:]] = name
        rest, line, model = name.rpartition("_")
        after.setdefault(f"*{line}{model}", {})[rest] = name
    return [models for models in (before, after) if have_same_classes(models)]


def have_same_classes(models: Models) -> bool:
    """Whether there are two models or more, all with the same classes, two or more."""
    classes = [set(columns) for columns in models.values()]
    return len(models) > 1 and len(classes[0]) > 1 and all(own == classes[0] for own in classes)


def shared_start(names: Sequence[str]) -> str:
    """Return the characters with which all names begin.

    >>> shared_start(["p_cat", "p_cow"])
    'p_c'
    """
    lowest, highest = min(names), max(names)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(lowest, highest, strict=False))
    return "".join(character for character, _ in same)


def without_common(names: Sequence[str]) -> list[str]:
    """Return names without the part before or after the class that all share.

    >>> without_common(["gb_cat", "gb_dog"]), without_common(["cat_x", "dog_x"])
    (['cat', 'dog'], ['cat', 'dog'])
    """
    before = shared_start(names).rfind("_") + 1
    rest = [name[before:] for name in names]
    after = shared_start([name[::-1] for name in rest]).rfind("_") + 1
    return [name[: len(name) - after] for name in rest]


def class_of(name: str) -> str:
    """Return the class that a column of scores is named by.

    >>> class_of("p_benign"), class_of("prob(cat)"), class_of("dog")
    ('benign', 'cat', 'dog')
    """
    match = None if name.lower() in KNOWN else PREFIX.match(name)
    return next(part for part in match.groups()[1:] if part) if match else name


def listed_columns(names: Iterable[str]) -> str:
    """Return the names of columns, arrays or classes, for an error.

    >>> listed_columns(["a", ""])
    'a, (a column without a name)'
    >>> listed_columns(["lesser spotted " + "warbler" * 9] * 5).endswith(" and 2 more")
    True
    """
    names = [name or "(a column without a name)" for name in names]
    show = 12 if sum(map(len, names[:12])) <= MAX_LISTED else 3
    return listed(names, show)
