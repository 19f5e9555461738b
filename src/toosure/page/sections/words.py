"""Every quantity of the page in a sentence, from the table of quantities."""

from html import escape

from toosure.page.html import prose, section
from toosure.page.page_runs import PageRuns
from toosure.page.sections.comparison import columns_of
from toosure.page.sections.shifts import KEYS, has_shifts
from toosure.quantities import Quantity, described

ALWAYS = ("accuracy", "nll", "ece", "smece", "gap")
BETTER = {"lower": "lower is better", "higher": "higher is better", "": ""}


def words(page: PageRuns) -> str:
    """Return the meaning of each quantity on the page; links to `#term-KEY` lead here."""
    keys = [*ALWAYS, *(q.key for q in columns_of(page.runs)), *page.panel_keys]
    keys += KEYS if has_shifts(page) else ()
    entries = [described(key) for key in dict.fromkeys(keys)]
    items = "".join(map(entry_of, filter(lambda quantity: quantity.says, entries)))
    return section(
        "What the words mean",
        "Points are percentage points.",
        f'<dl class="words">{items}</dl>',
        name="words",
        short="Words",
    )


def entry_of(quantity: Quantity) -> str:
    """Return the definition of one quantity."""
    details = [BETTER[quantity.better], f"in {quantity.unit}" if quantity.unit else ""]
    small = "; ".join(filter(None, details))
    note = f" <small>{escape(small)}.</small>" if small else ""
    short = f" ({quantity.label})" if quantity.label and quantity.label != quantity.name else ""
    return (
        f'<div id="term-{escape(quantity.key)}"><dt>{escape(quantity.title)}{escape(short)}</dt>'
        f"<dd>{prose(quantity.says)}.{note}</dd></div>"
    )
