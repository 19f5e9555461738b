"""A run as a notebook shows it: what it is, how it stands, its last numbers."""

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toosure.runs.read import Run

SHOWN = ("loss", "accuracy", "ece", "smece", "nll", "gn_sharpness", "margin_q01")


def as_html(run: "Run") -> str:
    """Return a small table of the last row, training beside validation, with the warnings."""
    row = run.last
    splits = [split for split in ("train", "val") if f"{split}/loss" in row]
    head = "".join(f"<th>{split}</th>" for split in ("", *splits))
    body = "".join(
        f"<tr><th>{name}</th>{''.join(cell(row.get(f'{split}/{name}')) for split in splits)}</tr>"
        for name in SHOWN
        if any(f"{split}/{name}" in row for split in splits)
    )
    where = f"{run.status}, step {row['step']:,}, {len(run.rows):,} rows" if row else run.status
    warned = "".join(f"<br>{escape(warning)}" for warning in run.warnings)
    return (
        f"<p><b>{escape(run.name)}</b><br>{escape(where)}{warned}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def cell(value: Any) -> str:
    return f"<td>{value:.4g}</td>" if isinstance(value, int | float) else "<td>–</td>"
