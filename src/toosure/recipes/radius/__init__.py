"""The recipe of the steered radius: is a network calibrated at the end of its training?"""

from collections.abc import Callable, Sequence

from toosure.config import RunConfig
from toosure.recipes.benchmark.scored_rows import Row, configs_of
from toosure.recipes.radius import (
    combinations,
    comparison,
    cost,
    held,
    robust,
    robust_rows,
    rows,
    shift,
)
from toosure.recipes.recipe import Part, Recipe, Setting


def part_configs(
    rows_of: Callable[[Setting], Sequence[Row]],
) -> Callable[[Setting], list[RunConfig]]:
    """Return a part's `configs`: the runs of its rows."""
    return lambda setting: configs_of(rows_of(setting))


RECIPE = Recipe(
    "radius",
    "The honest radius: a training loop that steers itself",
    "docs/control.md",
    (
        Part(
            "combinations",
            "control of SAM, CSAM and ASAM, with EMA, with the split returned; validation only",
            part_configs(combinations.all_rows),
            combinations.findings,
        ),
        Part(
            "comparison",
            "the goal: all rivals, three seeds, also after temperature scaling",
            part_configs(rows.comparison),
            comparison.findings,
        ),
        Part(
            "held",
            "ASAM at constant radii: is it the radius that was found, or the way there?",
            part_configs(rows.held),
            held.findings,
        ),
        Part(
            "shift",
            "15 corruptions at 5 severities, against temperature scaling (with --shift all)",
            part_configs(rows.shift),
            shift.findings,
        ),
        Part(
            "network",
            "a second network, ResNet-56, one seed",
            part_configs(rows.network),
            comparison.network_findings,
        ),
        Part(
            "robust",
            "other starts, control splits, batches, and wrong labels; one seed",
            part_configs(robust_rows.robust),
            robust.findings,
        ),
        Part(
            "ablations",
            "sensor, dead band, gain, actuator, EMA; one seed",
            part_configs(robust_rows.ablations),
            robust.ablations,
        ),
        Part(
            "cost",
            "the share of the time that looks take",
            part_configs(rows.cost),
            cost.findings,
        ),
    ),
    options=frozenset({"--method", "--scores", "--shift"}),
    several_data_sets=True,
    folder="benchmark",
)
