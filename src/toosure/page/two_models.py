"""The page of `toosure compare`: which of two models is better in what, and by how much."""

from html import escape

from toosure.evaluate.paired import Comparison, Difference
from toosure.page.html import page, prose, section
from toosure.page.reliability_pair import reliability_pair
from toosure.page.tables import table
from toosure.quantities import QUANTITIES


def comparison_page(result: Comparison) -> str:
    """Return the self-contained page of a comparison."""
    tone = {"better": "fine", "worse": "over"}.get(result.kind, "")
    sentence = result.sentence
    if sentence.startswith("the second"):  # else it starts with a number or a name
        sentence = sentence[:1].upper() + sentence[1:]
    header = (
        f'<header><p class="source">toosure · {both_named(result)}'
        f'</p><h1><span class="{tone}">{escape(sentence)}</span></h1>'
        f"<p>{prose(f'On {result.n:,} rows, {result.checked}.')}</p></header>"
    )

    titles = short_names(result)
    if result.names != (result.first, result.second):
        titles = ("First", "Second")
    first, second = zip(titles, result.tables, strict=True)
    diagrams = reliability_pair(first, second, result.bins, result.level, result.class_one)
    return page(sentence, "\n".join([header, differences(result), diagrams]))


def short_names(result: Comparison) -> tuple[str, str]:
    """Return what headings call the two."""
    first, second = result.names
    return first.removeprefix("the "), second.removeprefix("the ")


def both_named(result: Comparison) -> str:
    """Return both names in full, and which is the first."""
    first, second = escape(result.first), escape(result.second)
    if result.names == (result.first, result.second):
        return f"{first} and {second}"
    return f"first: {first} · second: {second}"


def differences(result: Comparison) -> str:
    """Return every number of both and the change with its interval."""
    rows = [
        ((d.key, QUANTITIES[d.key].says), d.first, d.second, *d.change, word_of(d))
        for d in result.differences
    ]

    header = ("metric", *short_names(result), "change", "low", "high", "second is")
    note = (
        f"The second less the first, with {100 * result.level:g} % intervals of each by itself, by "
        f"resampling the same {result.resampled} of both. ECE over {result.bins} bins. "
    )
    note += f"{result.judged}. " if result.judged else ""
    note += result.left_out

    forms = ("", ".4f", ".4f", "+.4f", "+.4f", "+.4f", "")
    return section("Differences", note.strip(), table(header, rows, forms))


def word_of(row: Difference) -> str:
    """Return whether the second is better in one number, in words."""
    if row.infinite:
        return "not compared"
    return {1: "better", -1: "worse", 0: "not shown to differ"}[row.direction]
