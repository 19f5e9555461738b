"""Each setting against a reference on the same examples, and what may be chance."""

import json
from collections.abc import Mapping
from html import escape

from toosure.page.half_intervals import PlusMinus
from toosure.page.html import in_script, section
from toosure.page.number_text import printed
from toosure.page.packing import ArrayPool
from toosure.page.page_runs import PageRuns
from toosure.page.paired import SettingComparison
from toosure.page.replicas import KEYS
from toosure.page.tables import Cell, Heading, HtmlCell, table
from toosure.quantiles import student_quantile
from toosure.quantities import Quantity, described
from toosure.sentences import listed

SPLITS = {"test": "test", "val": "validation"}


def differences(page: PageRuns) -> str:
    """Return the table of differences and the choice of the reference; empty without two."""
    comparison = page.comparison
    if comparison is None:
        return ""
    labels = [group.label for group in page.groups if group.label in comparison.settings]
    reference = page.reference.label
    options = "".join(
        f"<option{' selected' if label == reference else ''}>{escape(label)}</option>"
        for label in labels
    )

    note = (
        f"How much higher each setting is than the reference, on the same {comparison.n:,} "
        f"{SPLITS[comparison.split]} examples: their last predictions, resampled together, and the "
        "spread over seeds where there are several; ± is half a 95 % interval. Grey may be chance."
    )
    choice = (
        '<div class="controls"><label class="wide">reference <select id="reference">'
        f"{options}</select></label></div>"
    )
    missing = [group.label for group in page.groups if group.label not in comparison.settings]
    left_out = f" Without predictions of these examples: {listed(missing, 3)}." if missing else ""
    return section(
        "Differences on the same examples",
        note + left_out,
        choice,
        f'<div id="difference-table">{difference_table(page, comparison, reference)}</div>',
        scores_script(comparison, labels),
        name="differences",
        short="Differences",
    )


def difference_table(page: PageRuns, comparison: SettingComparison, reference: str) -> str:
    """Return the table against one reference; the scripts refill it for another."""
    header: list[Heading] = ["setting", *(described(key) for key in KEYS)]
    rows: list[list[Cell]] = []
    labels = [group.label for group in page.groups if group.label in comparison.settings]
    for label in labels:
        by_key = comparison.difference(label, reference)
        name = "" if label != reference else "the reference"
        rows.append([(label, name), *difference_cells(by_key, label == reference)])
    return table(
        header, rows, sortable=True, attributes=[f'data-label="{escape(x)}"' for x in labels]
    )


def difference_cells(by_key: Mapping[str, PlusMinus], is_reference: bool) -> list[HtmlCell]:
    """Return the cells of a setting; dashes for the reference itself."""
    if is_reference:
        return [HtmlCell.of('<span class="chance">–</span>', 0.0) for _ in by_key]
    return [difference_cell(described(key), each) for key, each in by_key.items()]


def difference_cell(quantity: Quantity, difference: PlusMinus) -> HtmlCell:
    """Return a difference with its interval; grey if it may be chance."""
    value = quantity.scale * difference.value
    form = quantity.form.replace(".", "+.", 1)
    helps = (difference.value < 0) == (quantity.better == "lower")
    kind = "chance" if difference.is_chance else "gain" if helps else "loss"
    half = printed(quantity.scale * difference.half_width, quantity.form)
    text = f'<span class="{kind}">{printed(value, form)}<small>±&nbsp;{half}</small></span>'
    return HtmlCell.of(text, value)


def scores_script(comparison: SettingComparison, labels: list[str]) -> str:
    """Return the scores and their replicas, from which the page computes any difference."""
    pool = ArrayPool()
    settings = {}
    for label in labels:
        scores = comparison.settings[label]
        settings[label] = {
            "seeds": scores.seeds,
            "by_seed": scores.by_seed.tolist(),
            "samples": pool.add(scores.samples.T.ravel().astype("float32")),
        }

    max_seeds = max(len(comparison.settings[label].seeds) for label in labels)
    quantities = [
        {"scale": q.scale, "digits": int(q.form[1]), "lower": q.better == "lower"}
        for q in map(described, KEYS)
    ]
    content = {
        "arrays": pool.arrays,
        "settings": settings,
        "quantities": quantities,
        "student": [student_quantile(0.975, freedom) for freedom in range(1, max_seeds)],
    }

    text = in_script(json.dumps(content, separators=(",", ":")))
    return f'<script type="application/json" id="scores">{text}</script>'
