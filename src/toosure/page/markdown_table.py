"""Tables in Markdown."""

from collections.abc import Sequence


def markdown_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: bool = False,
    show: int | None = None,
) -> str:
    """Return a table in Markdown: its first `show` rows, and how many more there are.

    With `numbers`, all columns but the first are aligned to the right.

    >>> print(markdown_table(("a", "b"), [("x|y", "1"), ("z", "2")], numbers=True, show=1))
    | a | b |
    |---|--:|
    | x\\|y | 1 |
    <BLANKLINE>
    ... and 1 more.
    """
    others = "--:" if numbers else "---"
    rule = "|".join(["---", *[others] * (len(header) - 1)])
    table = "\n".join([table_line(header), f"|{rule}|", *map(table_line, rows[:show])])
    left_out = 0 if show is None else len(rows) - show
    return f"{table}\n\n... and {left_out} more." if left_out > 0 else table


def table_line(cells: Sequence[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
