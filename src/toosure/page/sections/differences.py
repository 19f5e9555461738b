"""Each setting against a reference on the same examples, and what may be chance."""

import json
import math
from collections.abc import Mapping
from html import escape

from toosure.page.half_intervals import PlusMinus, seeds_factor
from toosure.page.html import change_of, data_heading, in_script, prose, section
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
MOSTLY_OVER = "mostly over"
DECIDES = "ece"  # whose interval is said to be over seeds or examples


def differences(page: PageRuns) -> str:
    """Return the differences within each data set; empty if none has two settings to compare."""
    blocks = [
        block(head, part, part.comparison) for head, part in page.headed_parts if part.comparison
    ]
    if not blocks:
        return ""

    note = (
        "How much higher each setting is than the reference on the same examples: their last "
        "predictions, resampled together, and the spread over seeds where there are several; ± is "
        "half a 95 % interval. Grey may be chance. The last column says what would narrow the "
        "interval of the ECE most: more examples, or more seeds (5 leave about "
        f"{100 * seeds_factor(5) / seeds_factor(2):.0f} % of the part that 2 have)."
    )
    return section(
        "Differences on the same examples", note, *blocks, name="differences", short="Differences"
    )


def block(head: str, page: PageRuns, comparison: SettingComparison) -> str:
    """Return the table of one data set, the choice of its reference, and the scores."""
    labels = [group.label for group in page.groups if group.label in comparison.settings]
    reference = page.reference.label
    options = "".join(
        f"<option{' selected' if label == reference else ''}>{escape(label)}</option>"
        for label in labels
    )

    on = f"On {comparison.n:,} {SPLITS[comparison.split]} examples."
    on += f" The reference is {page.why_reference}, unless you choose another."
    missing = [
        group.label for group in page.distinct_groups if group.label not in comparison.settings
    ]
    left_out = f" Without predictions of these examples: {listed(missing, 3)}." if missing else ""
    return (
        f'<div class="differences" data-of="{escape(head)}">{data_heading(head)}'
        f"<p>{prose(on + left_out)}</p>"
        '<div class="controls"><label class="wide">reference <select class="reference">'
        f"{options}</select></label></div>"
        f"{difference_table(page, comparison, reference)}{scores_script(comparison, labels)}</div>"
    )


def difference_table(page: PageRuns, comparison: SettingComparison, reference: str) -> str:
    """Return the table against one reference; the scripts refill it for another."""
    header: list[Heading] = ["setting", *map(change_of, KEYS), MOSTLY_OVER]
    rows: list[list[Cell]] = []
    labels = [group.label for group in page.groups if group.label in comparison.settings]
    for label in labels:
        by_key = comparison.difference(label, reference)
        is_reference = label == reference
        name = "the reference" if is_reference else ""
        over = mostly_over(by_key[DECIDES], comparison.seeds(label, reference), comparison.n)
        cells = difference_cells(by_key, is_reference)
        rows.append([(label, name), *cells, "–" if is_reference else over])
    return table(
        header, rows, sortable=True, attributes=[f'data-label="{escape(x)}"' for x in labels]
    )


def mostly_over(difference: PlusMinus, seeds: int, n: int) -> str:
    """Return whether seeds or examples make up the larger part of an interval, and how many."""
    return f"{seeds} seeds" if difference.is_over_seeds else f"{n:,} examples"


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
    kind = "gain" if helps else "loss"
    if difference.is_chance:
        kind = "chance"
    note = prose(interval_text(quantity, difference))
    text = f'<span class="{kind}">{printed(value, form)}<small>{note}</small></span>'
    return HtmlCell.of(text, value)


def interval_text(quantity: Quantity, difference: PlusMinus) -> str:
    """Return ± half an interval; its ends, where they meet what is possible.

    >>> interval_text(described("ece"), PlusMinus(0.1, 0.02))
    '± 2.00'
    >>> interval_text(described("ece"), PlusMinus(0.1, 0.95))
    '−85.00 to +100.00'
    """
    wanted = difference.value - difference.half_width, difference.value + difference.half_width
    ends = difference.ends(limit_of(quantity))
    if ends == wanted:
        return f"± {printed(quantity.scale * difference.half_width, quantity.form)}"
    form = quantity.form.replace(".", "+.", 1)
    return " to ".join(printed(quantity.scale * end, form) for end in ends)


def limit_of(quantity: Quantity) -> float:
    """Return how far two values can be apart: 1 if they are shares, of 100 %."""
    return 1.0 if quantity.scale == 100 else math.inf


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
        {
            "scale": q.scale,
            "digits": int(q.form[1]),
            "lower": q.better == "lower",
            "limit": limit_of(q) if math.isfinite(limit_of(q)) else None,
        }
        for q in map(described, KEYS)
    ]
    content = {
        "arrays": pool.arrays,
        "settings": settings,
        "quantities": quantities,
        "student": [student_quantile(0.975, freedom) for freedom in range(1, max_seeds)],
        "n": comparison.n,
        "decides": KEYS.index(DECIDES),
    }

    text = in_script(json.dumps(content, separators=(",", ":")))
    return f'<script type="application/json" class="scores">{text}</script>'
