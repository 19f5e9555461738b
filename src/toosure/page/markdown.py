"""The report as Markdown, for pull requests and papers: the decision, tables, small pictures."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from toosure.page.data_sets import how_to_name
from toosure.page.decision import decide, title_of
from toosure.page.html import change_of
from toosure.page.markdown_table import markdown_table
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.paired import SettingComparison
from toosure.page.pictures import gap_picture, line_picture
from toosure.page.ranking import RankedSetting
from toosure.page.replicas import KEYS
from toosure.page.sections.differences import (
    DECIDES,
    MOSTLY_OVER,
    SPLITS,
    interval_text,
    mostly_over,
)
from toosure.page.sections.summary import number_cell
from toosure.quantities import described

MAX_ROWS = 40  # of a table
COLUMNS = ("nll", "accuracy", "ece")


def markdown_report(page: PageRuns, pictures: Path) -> str:
    """Return the report as text, and write its pictures (SVG) into a folder beside it.

    The text refers to them by the name of the folder.
    """
    parts = [
        f"# {without_tags(title_of(page))}",
        without_tags(page.conclusion),
        how_to_name(page.by_data_set),
        "\n".join(f"- Not counted as seeds: {without_tags(text)}" for text in page.cautions),
    ]
    for head, part in page.headed_parts:
        decision = decide(part)
        level = "###" if head else "##"
        if head:
            parts.append(f"## {without_tags(head)}: {without_tags(decision.title)}")
        parts += [without_tags(decision.reason)]
        parts += ["\n".join(f"- {without_tags(step)}" for step in decision.steps)]
        parts += [f"{level} Ranking", ranking_table(part.ranked_settings)]
        if part.comparison is not None:
            parts += [f"{level} Differences on the same examples"]
            parts += [difference_note(part, part.comparison)]
            parts += [difference_table(part, part.comparison)]

    pictures.mkdir(parents=True, exist_ok=True)
    drawings = {"gap": gap_picture(page), "ece": line_picture(page, "ece")}
    drawings["accuracy"] = line_picture(page, "accuracy")
    for name, svg in drawings.items():
        if svg:
            (pictures / f"{name}.svg").write_text(svg, encoding="utf-8")
            parts.append(f"![{name}]({pictures.name}/{name}.svg)")
    return "\n\n".join(part for part in parts if part) + "\n"


def without_tags(content: str) -> str:
    """Return a text without tags."""
    return escape(content, quote=False)


def ranking_table(ranked_settings: Sequence[RankedSetting]) -> str:
    """Return every setting in the order of the page."""
    header = ["setting", "seeds", *(described(key).heading for key in COLUMNS), "verdict"]
    rows = []
    for setting in ranked_settings:
        cells = [number_cell(setting, key) for key in COLUMNS]
        numbers = [f"{cell.text} {cell.note}".rstrip() for cell in cells]
        seeds = str(len(setting.group.runs))
        rows.append(
            [without_tags(setting.label), seeds, *numbers, without_tags(setting.verdict.sentence)]
        )
    return markdown_table(header, rows, numbers=True, show=MAX_ROWS)


def difference_note(page: PageRuns, comparison: SettingComparison) -> str:
    """Return what the table of differences shows, and what is in bold."""
    return (
        f"Against {without_tags(page.reference.label)} ({page.why_reference}), on {comparison.n:,} "
        f"{SPLITS[comparison.split]} examples; ± is half a 95 % interval. In bold: more than "
        "chance. The last column: what would narrow the interval of the ECE most."
    )


def difference_table(page: PageRuns, comparison: SettingComparison) -> str:
    """Return the difference of each setting to the reference."""
    reference = page.reference.label
    rows = []
    for group in page.groups:
        if group.label not in comparison.settings or group.label == reference:
            continue

        by_key = comparison.difference(group.label, reference)
        cells = []
        for key, difference in by_key.items():
            quantity = described(key)
            value = printed(quantity.scale * difference.value, quantity.form.replace(".", "+.", 1))
            interval = interval_text(quantity, difference)
            text = f"{value} {interval}" if "±" in interval else f"{value} ({interval})"
            cells.append(text if difference.is_chance else f"**{text}**")
        seeds = comparison.seeds(group.label, reference)
        over = mostly_over(by_key[DECIDES], seeds, comparison.n)
        rows.append([without_tags(group.label), *cells, over])

    header = ["setting", *(change_of(key).heading for key in KEYS), MOSTLY_OVER]
    return markdown_table(header, rows, numbers=True, show=MAX_ROWS)


def write_markdown(page: PageRuns, output: Path) -> None:
    """Write the report to a file, and its pictures into the folder `NAME_pictures` beside it."""
    with np.errstate(all="ignore"):
        text = markdown_report(page, output.with_name(f"{output.stem}_pictures"))
    output.write_text(text, encoding="utf-8")
