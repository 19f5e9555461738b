"""Temperature scaling, before and after: what each run wrote at its end."""

from collections.abc import Mapping
from typing import Any

from toosure.page.html import Cell, Heading, Shown, printed, section, table
from toosure.page.page_runs import PageRuns
from toosure.page.paired import Difference
from toosure.page.scaling_effect import scaling_effect
from toosure.page.sections.differences import listed
from toosure.runs import Run

NOTE = (
    "One temperature T per run, fitted on validation data by NLL and judged on test data that it "
    "never saw; accuracy stays as it was. Above 1 it cools an over-confident network. ± is half a "
    "95 % interval; chance is what a perfectly calibrated network may show on so many examples. "
    "For other calibrators: toosure calibrate."
)
NUMBERS = ("temperature", "ece", "ece_after", "nll", "nll_after", "n")


def temperature(page: PageRuns) -> str:
    """Return the table of runs that were judged with and without a temperature.

    Runs of older versions wrote no such numbers: the section says how to add them.
    """
    rows = [row_of(name, run) for name, run in page.named if is_whole(run.scaling)]
    missing = [name for name, run in page.named if lacks_scaling(run)]
    if not rows and not missing:
        return ""

    note = NOTE if rows else ""
    if missing:
        note += (
            f" Not judged yet: {listed(missing)}. To add it, run `toosure calibrate RUN` once for "
            "each, with its folder as RUN."
        )
    header: list[Heading] = ["run", "T", "ECE before, points", "ECE after", "by chance"]
    header += ["NLL before", "NLL after", "samples"]
    formats = ("", ".3f", "", "", "", ".3f", ".3f", ",")
    return section(
        "Temperature scaling, before and after",
        note.strip(),
        table(header, rows, formats, sortable=True) if rows else "",
        name="calibrators",
        short="Temperature",
    )


def is_whole(scaling: Mapping[str, Any]) -> bool:
    """Whether every number is there."""
    return all(isinstance(scaling.get(name), int | float) for name in NUMBERS)


def lacks_scaling(run: Run) -> bool:
    """Whether a run kept predictions and no numbers of what a temperature does to them."""
    return not run.scaling and run.status == "complete" and (run.path / "predictions.npz").is_file()


def row_of(name: str, run: Run) -> list[Cell]:
    """Return the row of a run: what it wrote, with intervals where its predictions are kept."""
    scaling = run.scaling
    effect = scaling_effect(run)
    chance = None if effect is None else 100 * effect.chance
    return [
        (name, str(scaling.get("note", ""))),
        scaling["temperature"],
        points(scaling["ece"], effect.before if effect else None),
        points(scaling["ece_after"], effect.after if effect else None),
        Shown(chance, "–" if chance is None else f"up to {chance:.1f}"),
        scaling["nll"],
        scaling["nll_after"],
        scaling["n"],
    ]


def points(value: float, estimate: Difference | None) -> Shown:
    note = "" if estimate is None else f"± {100 * estimate.half:.2f}"
    return Shown(100 * value, printed(100 * value, ".2f"), note)
