"""Which setting to take, how honest it is, and what to do next: the first screen in sentences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from toosure.finite import is_finite_number
from toosure.page.data_sets import UNNAMED
from toosure.page.half_intervals import more_seeds
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.ranking import RankedSetting
from toosure.page.run_verdict import RunVerdict, headline
from toosure.page.validation_hint import validation_hint
from toosure.quantiles import NORMAL_95
from toosure.quantities import described
from toosure.runs import Run
from toosure.runs.regular_files import printable
from toosure.sentences import listed
from toosure.verdicts import plural

WEAK_GAIN = 0.1  # points of ECE; a smaller gain is not mentioned
ON_TEST_ONLY = (
    "No setting has validation data. These verdicts are of test data, which must not choose: a "
    "setting that is chosen by them looks better on them than it is."
)
UNFINISHED = ("stopped", "interrupted")
SCALING = ("temperature", "ece", "ece_after")


@dataclass(frozen=True)
class Decision:
    """The setting to take, and the sentences that say so."""

    kind: str  # of the verdict: its colour
    title: str
    reason: str
    steps: tuple[str, ...]  # what to do next
    setting: RankedSetting | None = None


def decide(page: PageRuns) -> Decision:
    """Take the setting with the lowest validation NLL among those not clearly less accurate.

    All settings must be of one data set (`PageRuns.by_data_set`).
    """
    settings = [setting for setting in page.ranked_settings if not setting.group.repeats]
    if len(settings) == 1:
        only = settings[0]
        return Decision(only.verdict.kind, only.verdict.sentence, "", next_steps(page, only), only)

    overall = headline(list(page.verdicts.values()))
    ranked = [setting for setting in settings if setting.is_ranked]
    if not ranked:
        on_test = any(setting.verdict.on_test for setting in settings)
        reason = "No setting has validation data and ended as it should."
        reason = ON_TEST_ONLY if on_test else reason
        return Decision(*overall, reason, (way_to_a_ranking(page),))

    accurate = [setting for setting in ranked if not is_less_accurate(page, setting, ranked)]
    chosen = accurate[0]
    sentence = chosen.verdict.sentence
    verb = "So far" if any(run.status == "running" for run in page.runs) else "Take"
    title = f"{verb} {chosen.label}: {sentence[:1].lower()}{sentence[1:]}"

    why = reason_for(chosen, accurate, ranked)
    if len(ranked) == 1:
        why = (
            f"It is the only one of {len(settings)} settings that did not end early "
            "and has validation data."
        )
    reason = f"{why} {overall[1]}."
    if chosen.left_out:
        left_out = f"{chosen.left_out} of its {len(chosen.group.runs)} runs"
        reason += f" {left_out} ended early or have no validation data, and are left out."
    return Decision(chosen.verdict.kind, title, reason, next_steps(page, chosen), chosen)


def title_of(page: PageRuns) -> str:
    """Return the title of a page: its decision, or its data sets if there are several."""
    parts = page.by_data_set
    if len(parts) == 1:
        return decide(page).title
    names = listed(names_of_data_sets(parts), 3)
    return f"{len(parts)} data sets, each with its own decision: {names}"


def names_of_data_sets(data_sets: Iterable[str]) -> list[str]:
    """Return the names for readers; data without a name are called so."""
    return [name or UNNAMED for name in data_sets]


def way_to_a_ranking(page: PageRuns) -> str:
    """Return what to do if no setting can be ranked."""
    if page.training_only:
        on_test = any(verdict.on_test for verdict in page.verdicts.values())
        return validation_hint(page.runs, on_test)
    if all(run.status in UNFINISHED for run in page.runs):
        how = "Train these runs to their end"
        if all(map(can_be_repeated, page.runs)):
            how = "Repeat the commands of these runs to finish them"
        return f"{how}: all were stopped or interrupted."
    return "Read the warnings under Origin; a smaller learning rate may keep a run from diverging."


def reason_for(
    chosen: RankedSetting, accurate: list[RankedSetting], ranked: list[RankedSetting]
) -> str:
    """Return why a setting was chosen, and which had a lower NLL at a lower accuracy.

    If no NLL was measured, settings are in the order of their ECE.
    """
    count = f"{len(ranked)} {plural(len(ranked), 'setting')}"
    key = "nll" if math.isfinite(chosen.nll) else "ece"
    name = key.upper()
    value = chosen.values.get(key, math.nan)
    lowest = f"lowest validation {name}"
    if math.isfinite(value):
        lowest += f", {printed(value, described(key).form)},"
    if len(accurate) == len(ranked):
        return f"It has the {lowest} of {count}; none is clearly more accurate."

    is_lowest = not ranked[0].values.get(key, math.inf) < value
    if len(accurate) == 1:
        best = "also " if is_lowest else "not "
        others = f"the other {len(ranked) - 1}" if len(ranked) > 2 else "the other"
        return (
            f"It is clearly more accurate than {others}; its validation {name} is {best}the lowest."
        )

    reason = (
        f"It has the {lowest} among the {len(accurate)} of {count} whose "
        "accuracy is not clearly below the highest."
    )
    if not is_lowest:
        reason += f" {ranked[0].label} has a lower one and is less accurate."
    return reason


def is_less_accurate(page: PageRuns, setting: RankedSetting, ranked: list[RankedSetting]) -> bool:
    """Whether the accuracy of a setting is below the highest by more than chance.

    It is judged on the same examples if predictions were kept, else by binomial errors.
    """
    top = max(ranked, key=lambda each: each.values.get("accuracy", -math.inf))
    if setting is top:
        return False
    compared = page.comparison.settings if page.comparison else {}
    if page.comparison and setting.label in compared and top.label in compared:
        difference = page.comparison.difference(setting.label, top.label)["accuracy"]
        return difference.value < 0 and not difference.is_chance

    lower = setting.values.get("accuracy", math.nan)
    higher = top.values.get("accuracy", math.nan)
    errors = [
        binomial_error(each.values.get("accuracy", math.nan), each.n) for each in (setting, top)
    ]
    return higher - lower > NORMAL_95 * math.hypot(*errors)


def binomial_error(accuracy: float, n: int) -> float:
    """Return the standard error of an accuracy in per cent; infinite if n is not known."""
    share = min(max(accuracy / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / n) if n else math.inf


def next_steps(page: PageRuns, chosen: RankedSetting) -> tuple[str, ...]:
    """Return what to do about a setting, and what it gained."""
    steps = (correction(chosen), gain_over_reference(page, chosen))
    return tuple(step for step in steps if step)


def correction(chosen: RankedSetting) -> str:
    """Return what would make a setting better calibrated."""
    runs = [run for run in chosen.group.runs if run.status != "diverged"]
    verdict = chosen.verdict
    if not runs and all(run.outcome.get("step") == 0 for run in chosen.group.runs):
        return "Check its inputs and the model as it starts: they gave NaN before any step."
    if not runs:
        return "Repeat it with a smaller learning rate."
    if all(run.status in UNFINISHED for run in runs):
        return way_to_its_end(runs[0])
    if verdict.training_only or verdict.on_test:
        return validation_hint(runs, verdict.on_test)

    is_running = any(run.status == "running" for run in runs)
    if verdict.kind == "none":
        return "" if is_running else "Measure confidence and accuracy on labelled data."

    if verdict.kind == "unclear":
        return way_to_a_verdict(verdict)
    if verdict.kind == "fine":
        return "Nothing to correct: its confidence can be taken as it is."
    return calibration(runs, is_running)


def way_to_its_end(run: Run) -> str:
    """Return how to finish a run that was killed or stopped."""
    step, total = run.step_reached, run.config.get("steps")
    where = f" at step {step:,}" if step is not None else ""
    where += f" of {total:,}" if where and isinstance(total, int) else ""
    how = "Repeat its command to finish it" if can_be_repeated(run) else "Train it to its end"
    return f"{how}: it was {run.status}{where}."


def can_be_repeated(run: Run) -> bool:
    """Whether its command finishes a run; a loop of one's own refuses a folder that holds one."""
    return bool(run.config) and not run.examples


def way_to_a_verdict(verdict: RunVerdict) -> str:
    """Return what would narrow the interval of a gap: more seeds, or more examples."""
    gap = verdict.estimate
    if gap.is_over_seeds:
        more = more_seeds(verdict.seeds)
        return (
            f"Repeat it with more seeds: {verdict.seeds} leave ± {gap.half_width:.1f} points, "
            f"{more} as far apart would leave about ± {gap.half_with(more, verdict.seeds):.1f}."
        )

    if not (verdict.n and math.isfinite(gap.half_width)):
        return "Judge it on more data."
    needed = math.ceil(verdict.n * gap.examples_half**2 / 100) * 100
    part = " of them" if verdict.seeds > 1 else ""
    return (
        f"Judge it on more data: {verdict.n:,} examples leave "
        f"± {gap.examples_half:.1f} points{part}, about {needed:,} would leave ± 1."
    )


def calibration(runs: Sequence[Run], is_running: bool) -> str:
    """Return the effect of a temperature on the runs of a setting, or how to find out."""
    scalings = [run.scaling for run in runs]
    known = [
        scaling for scaling in scalings if all(map(is_finite_number, map(scaling.get, SCALING)))
    ]
    if known:
        return temperature_sentence(known)

    for run in runs:
        if run.last_predictions.is_file():
            folder = printable(str(run.path))
            return f"`toosure calibrate {folder}` fits a calibrator, and judges it."

    if is_running:
        return "Wait for its end: then its predictions are kept, and a temperature can be fitted."
    return "Keep its predictions on validation data: `toosure calibrate FILE` fits a calibrator."


def temperature_sentence(scalings: Sequence[Mapping[str, Any]]) -> str:
    """Return the effect of a temperature on the test data of a run, or its mean over seeds."""
    temperature, before, after = (fmean(each[key] for each in scalings) for key in SCALING)
    numbers = f"ECE {100 * before:.1f} → {100 * after:.1f} points on test data"
    if len(scalings) > 1:
        numbers += f", mean over {len(scalings)} seeds"
    if 100 * after < 100 * before - WEAK_GAIN:
        return f"Temperature {temperature:.2f} takes {numbers}: divide the logits by it."
    return f"Temperature {temperature:.2f} does not help: {numbers}."


def gain_over_reference(page: PageRuns, chosen: RankedSetting) -> str:
    """Return how much a setting's ECE differs from the baseline's, and whether that is chance."""
    reference = page.reference.label
    comparison = page.comparison
    if comparison is None or reference == chosen.label or chosen.label not in comparison.settings:
        return ""

    difference = comparison.difference(chosen.label, reference)["ece"]
    seeds = comparison.seeds(chosen.label, reference)
    low, high = (100 * end for end in difference.ends(1))
    if difference.is_chance:
        interval = f"{printed(low, '+.1f')} to {printed(high, '+.1f')} points"
        advice = f"mostly over {comparison.n:,} examples: judge on more"
        if difference.is_over_seeds:
            more = more_seeds(seeds)
            expected = 100 * difference.half_with(more, seeds)
            advice = f"mostly over {seeds} seeds: {more} would leave about ± {expected:.1f}"
        return f"Its ECE against {reference} may differ by chance alone: {interval}, {advice}."

    word = "lower" if difference.value < 0 else "higher"
    nearest, furthest = sorted((abs(low), abs(high)))
    over = f", over {seeds} seeds" if seeds > 1 else ""
    return (
        f"Its ECE is {100 * abs(difference.value):.1f} points {word} than that of {reference}, "
        f"interval {nearest:.1f} to {furthest:.1f}, on the same {comparison.n:,} examples{over}."
    )
