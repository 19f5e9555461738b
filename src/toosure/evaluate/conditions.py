"""Conditions such as `ece > 0.05`, judged by a whole interval: for a check before a release."""

import math
import re
from dataclasses import dataclass

from toosure.evaluate.estimates import Estimate
from toosure.evaluate.multilabel import MultilabelEvaluation
from toosure.evaluate.result import Evaluation, metric_keys
from toosure.sentences import did_you_mean
from toosure.verdicts import plural

# Ranges of numbers that are not shares; all others lie between 0 and 1.
RANGES = {"gap": (-1.0, 1.0), "brier": (0.0, 2.0), "debiased_ece": (-1.0, 1.0), "skce": (-2.0, 2.0)}
UNBOUNDED = {key for key in metric_keys() if key.startswith(("nll", "brier_"))} | {
    *("entropy", "binary_entropy", "mmce", "kde_ece", "dece", "sece", "rmsce", "class_gap")
}
MIN_DRAWN = 5  # rows, or groups of rows: with fewer no condition holds
FORM = re.compile(r"^\s*(\w+)\s*(>=|<=|>|<)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*$")


@dataclass(frozen=True)
class Condition:
    """A bound on one number of an evaluation: `ece > 0.05`, in the unit of the JSON."""

    name: str  # a metric, "gap" or "binary_brier"
    above: bool  # it holds above the bound, or else below
    bound: float
    text: str


@dataclass(frozen=True)
class Judgement:
    """Whether a condition holds for sure, and the sentence that says why."""

    holds: bool
    sentence: str


def known_names() -> list[str]:
    """Return the numbers that a condition may name."""
    return ["gap", *metric_keys(), "binary_brier"]


def metric_of(condition: Condition) -> str | None:
    """Return the metric that a condition needs; None if every evaluation has its number."""
    return {"gap": None, "binary_brier": "brier"}.get(condition.name, condition.name)


def parse_condition(text: str) -> Condition:
    """Read `NAME > NUMBER` or `NAME < NUMBER`; raise if it is neither.

    >>> parse_condition("ece > 0.05")
    Condition(name='ece', above=True, bound=0.05, text='ece > 0.05')
    """
    match = FORM.match(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a condition: write NAME > NUMBER or NAME < NUMBER, as ece > 0.05; "
            f"names are {', '.join(known_names())}"
        )

    name, comparison, number = match.groups()
    if name not in known_names():
        longer = [known for known in known_names() if known.startswith(name)]
        all_names = f"; there are {', '.join(longer or known_names())}"
        hint = all_names if longer else did_you_mean(name, known_names(), all_names, cutoff=0.6)
        raise ValueError(f"{text!r}: no number {name!r}{hint}")

    try:
        bound = float(number)
    except ValueError:
        raise ValueError(f"{text!r}: {number!r} is not a number") from None

    condition = Condition(name, comparison[0] == ">", bound, " ".join(text.split()))
    check_possible(condition)
    return condition


def check_possible(condition: Condition) -> None:
    """Refuse a bound beyond all numbers, such as `ece > 5` for 0.05 and `accuracy < 90` for 0.9."""
    if condition.name in UNBOUNDED:
        return
    low, high = RANGES.get(condition.name, (0.0, 1.0))
    bound = condition.bound
    never = bound >= high if condition.above else bound <= low
    always = bound < low if condition.above else bound > high
    if not never and not always:
        return
    unit = "%" if condition.name == "accuracy" else "points"
    meant = bound if 1 < abs(bound) <= 100 else 5.0
    raise ValueError(
        f"{condition.text!r} {'can never hold' if never else 'always holds'}: {condition.name} "
        f"lies between {low:g} and {high:g}; {meant:g} {unit} are {meant / 100:g}"
    )


def judge(condition: Condition, result: Evaluation | MultilabelEvaluation) -> Judgement:
    """Judge whether a condition holds over the whole interval; raise if its number is missing.

    With very few rows a number is only noise, and no condition holds. Of independent labels the
    numbers of all labels pooled are judged.
    """
    estimate = result.number(condition.name)
    if estimate is None:
        raise ValueError(
            f"{condition.text}: {condition.name} is not known ({why_unknown(condition, result)})"
        )
    if math.isnan(estimate.value):
        raise ValueError(f"{condition.text}: {condition.name} is undefined for these predictions")

    if isinstance(result, MultilabelEvaluation):
        count = len(result.labels)
        groups, of = None, f" of all {count} labels" if count > 1 else ""
    else:
        groups = result.groups
        of = " of P(class 1)" if condition.name == "gap" and result.class_one else ""
    drawn = result.n if groups is None else groups
    if drawn < MIN_DRAWN:
        noun = plural(drawn, "row" if groups is None else "group")
        verb = "is" if drawn == 1 else "are"
        value = f"{condition.name} is {estimate.value:.4g}"
        sentence = f"passes: {drawn} {noun} {verb} too few to decide on {condition.text} ({value})"
        return Judgement(False, sentence)

    low, high = estimate.ends
    holds = low > condition.bound if condition.above else high < condition.bound
    return Judgement(holds, sentence_of(condition, estimate, result.level, holds, of))


def why_unknown(condition: Condition, result: Evaluation | MultilabelEvaluation) -> str:
    """Return why an evaluation lacks the number of a condition."""
    if isinstance(result, MultilabelEvaluation):
        return f"of independent labels there are {', '.join(result.pooled)}"
    if condition.name == "binary_brier":
        return "it needs two classes; name brier otherwise"
    return result.left_out.get(condition.name, "it was not measured")


def sentence_of(
    condition: Condition, estimate: Estimate, level: float, holds: bool, of: str
) -> str:
    """Return a sentence with the number, `of` what it is, its interval and the outcome."""
    value = f"{condition.name}{of} is {estimate.value:.4g}"
    if estimate.has_interval:
        low, high = estimate.ends
        value += f", {100 * level:g} % interval {low:.4g} to {high:.4g}"
    else:
        value += ", without an interval"

    beyond = "above" if condition.above else "below"
    if holds:
        return f"fails: {condition.text} ({value}: wholly {beyond} {condition.bound:g})"
    if (estimate.value > condition.bound) == condition.above and estimate.value != condition.bound:
        return f"passes: {condition.text} is not certain ({value})"
    return f"passes: not {condition.text} ({value})"
