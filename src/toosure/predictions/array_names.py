"""Which arrays of a file hold scores and truth, by their names."""

from collections.abc import Iterable, Sequence

from toosure.predictions.options import ReadOptions
from toosure.predictions.predictions import Kind
from toosure.predictions.usual_names import SCORES, UNTOLD_SCORES, listed_columns, pick

KINDS: tuple[Kind, ...] = ("logits", "probs", "confidence")


def pick_scores(names: Sequence[str], options: ReadOptions) -> tuple[Kind | None, str | None]:
    """Return the array of the scores and its kind; no kind where only the values tell it."""
    if options.columns:
        if len(options.columns) > 1 or options.columns[0] not in names:
            raise ValueError(
                f"--columns must name one array; got {','.join(options.columns)}, and it holds "
                f"{listed_columns(names)}"
            )
        return options.kind, options.columns[0]
    if options.kind is not None:
        named = pick(names, SCORES[options.kind], options.kind, "--columns")
        if named is None and options.kind != "confidence":
            named = pick(names, UNTOLD_SCORES, "scores", "--columns")
        return options.kind, named

    kinds = {kind: pick(names, SCORES[kind], kind, "--columns") for kind in KINDS}
    usual = {kind: name for kind, name in kinds.items() if name is not None}
    if len(usual) > 1:
        raise ValueError(f"holds {' and '.join(usual.values())}: choose one with --kind")
    if usual:
        return next(iter(usual.items()))
    return None, pick(names, UNTOLD_SCORES, "scores", "--columns")


def missing_array(name: str, arrays: Iterable[str], options: ReadOptions) -> str:
    """Return which array is missing, and where it may be."""
    hint = split_hint(arrays, options.split)
    if not hint and arrays:
        hint = ": name the scores and the true classes with --columns NAME --label-column NAME"
    return f"no array {name!r}; it holds {listed_columns(sorted(arrays))}{hint}"


def split_hint(arrays: Iterable[str], asked: str | None) -> str:
    """Name the other splits than the one asked for: those that have predictions and truth."""
    splits = set()
    for kind in KINDS:
        for name in arrays:
            prefix = name.removesuffix(kind)
            if name.endswith(f"_{kind}") and f"{prefix}{truth_name(kind)}" in arrays:
                splits.add(prefix.removesuffix("_"))
    splits.discard(asked or "")
    return f": choose --split {' or '.join(sorted(splits))}" if splits else ""


def score_name(kind: Kind | None) -> str:
    return kind or "logits"


def truth_name(kind: Kind | None) -> str:
    """Return our name for the array of labels or hits."""
    return "correct" if kind == "confidence" else "labels"
