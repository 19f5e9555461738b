"""Scores of members and mixture, of raw weights and averages, on validation data."""

from toosure.page.html import section
from toosure.page.page_runs import PageRuns
from toosure.page.tables import Cell, Heading, table
from toosure.quantities import described
from toosure.runs import Run

NOTE = (
    "At the last row of each run, on validation data. An ensemble predicts the mean of the "
    "probabilities of its members; these are shown by their mean, each judged alone. Two disagree "
    "on the rows where they predict different classes. An average of the weights (EMA, SWA) "
    "is one network, with BatchNorm statistics computed again. Margin certificates are about one "
    "network and are not measured on a mixture; the sharpness of a mixture is that of its log mean "
    "probability, with random members at their means."
)
HEADER: tuple[Heading, ...] = (
    "run",
    "what predicts",
    described("accuracy"),
    described("nll"),
    described("ece"),
    "members disagree, %",
    "KL / prior",
)
AVERAGES = {"ema": "EMA of the weights", "swa": "SWA", "swag": "SWAG, its mean"}


def members(page: PageRuns) -> str:
    """Return the table of runs with several predictions; empty if there is no such run."""
    rows = [row for name, run in page.named for row in rows_of(name, run)]
    if not rows:
        return ""
    formats = ("", "", ".2f", ".4f", ".2f", ".2f", ",.0f")
    return section(
        "Members and mixture", NOTE, table(HEADER, rows, formats, sortable=True), name="members"
    )


def rows_of(name: str, run: Run) -> list[list[Cell]]:
    """Return the rows of a run: the mixture and its members, or the weights and their averages."""
    last = run.last
    is_mixture = "objective/member_nll" in last
    averages = {key: says for key, says in AVERAGES.items() if f"{key}/nll" in last}
    if not is_mixture and not averages:
        return []

    whole = "mixture" if is_mixture else "the weights"
    disagreement = in_percent(last.get("objective/disagreement"))
    rows = [[name, whole, *scores(run, "val/"), disagreement, last.get("objective/kl")]]
    if is_mixture:
        rows.append([name, "members, mean", *scores(run, "objective/member_"), None, None])
    rows += [[name, says, *scores(run, f"{key}/"), None, None] for key, says in averages.items()]
    return rows


def scores(run: Run, prefix: str) -> list[Cell]:
    """Return accuracy, NLL and ECE of one way to predict, by the prefix of its keys."""
    values = [run.last.get(f"{prefix}{key}") for key in ("accuracy", "nll", "ece")]
    accuracy, nll, ece = (value if isinstance(value, float) else None for value in values)
    return [in_percent(accuracy), nll, in_percent(ece)]


def in_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
