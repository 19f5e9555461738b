"""Many settings at a glance: accuracy against ECE, and small multiples by any setting."""

from html import escape

from toosure.figures.groups import settings_of
from toosure.page.html import FIGURE_TOOLS, plot, section
from toosure.page.page_runs import PageRuns
from toosure.quantities import described

MIN_SETTINGS = 3  # for fewer settings the table is enough
MAX_VALUES = 16  # of a setting, as small multiples


def tradeoff(page: PageRuns) -> str:
    """Return accuracy against ECE with the Pareto front; empty if there are few settings."""
    known = [
        setting
        for setting in page.ranked_settings
        if setting.is_ranked and {"accuracy", "ece"} <= setting.values.keys()
    ]
    if len(known) < MIN_SETTINGS:
        return ""

    note = (
        "Each mark is a setting at its last row, on validation data. Those with a ring are the "
        f"Pareto front: nothing else{on_the_same(page)} is both more accurate and better "
        "calibrated. Point at a mark, or walk with the arrow keys."
    )
    drawing = plot(None, "Accuracy against ECE", kind="tradeoff", role="tradeoff")
    return section(
        "Accuracy against calibration",
        note,
        f"<figure>{drawing}{FIGURE_TOOLS}</figure>",
        name="tradeoff",
        short="Trade-off",
    )


def on_the_same(page: PageRuns) -> str:
    return " on the same data" if len(page.by_data_set) > 1 else ""


def varied_settings(page: PageRuns) -> list[str]:
    """Return the settings that take a few values over the groups.

    The optimizer comes first, then settings with the fewest values.
    """
    values: dict[str, set[str]] = {}
    for group in page.groups:
        for key, value in settings_of(group.runs[0].config).items():
            values.setdefault(key, set()).add(value)
    counts = {key: len(distinct) for key, distinct in values.items()}
    varied = [key for key in counts if 1 < counts[key] <= MAX_VALUES]
    return sorted(varied, key=lambda key: (key != "optimizer", counts[key]))


def multiples(page: PageRuns) -> str:
    """Return one small panel per value of a setting that is chosen on the page."""
    varied = varied_settings(page)
    keys = page.panel_keys
    if len(page.groups) < MIN_SETTINGS or not varied or not keys:
        return ""

    settings = "".join(f"<option>{escape(key)}</option>" for key in varied)
    quantities = "".join(
        f'<option value="{escape(key)}"{" selected" if key == "ece" else ""}>'
        f"{escape(described(key).heading)}</option>"
        for key in keys
    )

    return section(
        "By setting",
        "The same quantity for each value of a setting, on one scale; grey is not shown above.",
        '<div class="controls"><label class="wide">by <select id="multiples-setting">'
        f'{settings}</select></label> <label class="wide">of <select id="multiples-quantity">'
        f'{quantities}</select></label></div><div class="multiples" id="multiples-panels"></div>',
        name="multiples",
    )
