"""The margin theorems in words: which statements hold at the last row of each run."""

import math
from collections.abc import Iterable
from html import escape

from toosure.page.html import section
from toosure.page.page_runs import PageRuns
from toosure.page.tables import NumberCell, table
from toosure.runs import Run

FAILED = "train/certificate_failed"
CLAIMS = {
    "4.1 (i)": "calibration error is capped by the tail of small margins",
    "4.1 (ii)": "the same tail caps the sharpness",
    "4.2 (i)": "with every sample right, calibration error and margin tail go together",
    "4.2 (ii)": "sharpness forces calibration error",
    "4.2 (iii)": "sharpness forces calibration error",
    "4.2 (iv)": "the same holds for margins at the given radius",
    "4.2 (v)": "bins do not matter: the error is the mean doubt",
    "B.1": "calibration error is at most the mean distance between being right and being sure",
    "B.2": "that distance is at most the probability not given to the label",
    "B.3": "that probability is held between multiples of exp(-margin)",
    "B.4": "softmax is flat where the model is sure",
    "B.5": "moving the input lowers the margin by no more than its slope allows",
    "B.6": "how sure the model is caps its sharpness",
    "B.7": "what an attack finds lies below what is proved",
    "B.8": "test error is bounded by the training margins",
}


def certificates(page: PageRuns) -> str:
    """Return the certificate of each run in words; empty if none was asked for."""
    blocks = [certificate(name, run) for name, run in page.named if FAILED in run.last]
    if not blocks:
        return ""
    note = (
        "Inequalities between calibration, margins and sharpness that are theorems, checked on the "
        "training data of the last row. Open a run to read each; slack is how far a side may still "
        "move, and a failure would be a broken assumption or a bug of ours."
    )
    return section("Certificate", note, *blocks, name="certificate")


def certificate(name: str, run: Run) -> str:
    """Return how many statements hold in a run, and which is the tightest."""
    stated = number(run.last.get(FAILED))
    failed = int(stated) if math.isfinite(stated) else 0
    slacks = {
        k.split("slack ", 1)[1]: v for k, v in run.last.items() if k.startswith("train/slack ")
    }
    held = f"All {len(slacks)} statements that apply hold"
    if failed:
        held = f"{failed} of {len(slacks)} statements that apply FAIL"

    rows = [
        ((key, claim_of(key)), NumberCell(number(v), f"{number(v):.4g}"))
        for key, v in slacks.items()
    ]
    listed = table(("statement", "slack"), rows, sortable=True, name=f"certificate of {name}")
    tone = "over" if failed else "fine"
    return (
        f'<details><summary><strong>{escape(name)}</strong>: <span class="{tone}">{escape(held)}'
        f"</span></summary>{listed}</details>"
    )


def number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def claim_of(name: str) -> str:
    """Return a statement in plain words, by its longest known prefix."""
    fitting: Iterable[str] = (key for key in CLAIMS if name.startswith(key))
    return CLAIMS.get(max(fitting, key=len, default=""), "")
