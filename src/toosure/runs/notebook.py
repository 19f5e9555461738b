"""Show a run in a notebook: its name, status and last numbers."""

from html import escape
from typing import TYPE_CHECKING, Any

from toosure.quantities import shown_in

if TYPE_CHECKING:
    from toosure.runs.run import Run


def as_html(run: "Run") -> str:
    """Return a small table of the last row, training beside validation, with the warnings."""
    row = run.last
    splits = [split for split in ("train", "val") if f"{split}/loss" in row]
    head = "".join(f"<th>{split}</th>" for split in ("", *splits))

    body = "".join(
        f"<tr><th>{q.key}</th>{''.join(cell(row.get(f'{split}/{q.key}')) for split in splits)}</tr>"
        for q in shown_in("notebook")
        if any(f"{split}/{q.key}" in row for split in splits)
    )

    where = f"{run.status}, step {row['step']:,}, {len(run.rows):,} rows" if row else run.status
    warned = "".join(f"<br>{escape(warning)}" for warning in run.warnings)
    return (
        f"<p><b>{escape(run.name)}</b><br>{escape(where)}{warned}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def cell(value: Any) -> str:
    return f"<td>{value:.4g}</td>" if isinstance(value, int | float) else "<td>–</td>"
