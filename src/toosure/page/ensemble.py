"""The page of `toosure ensemble`: the verdict on the mixture, its figures, and its members."""

from toosure.evaluate.ensemble import Ensemble
from toosure.evaluate.verdict import verdict
from toosure.page.class_table import class_table
from toosure.page.evaluation import (
    figures,
    footer,
    headline,
    key_numbers,
    metrics_tables,
)
from toosure.page.html import page, section, tiles
from toosure.page.tables import table

NOTE = (
    "Each member judged alone, on the same rows. The gap is mean confidence minus accuracy: below "
    "0 a member is less sure than it is right, and averaging makes that stronger."
)
CLASS_ONE_NOTE = (
    "Each member judged alone, on the same rows, by P(class 1): the gap is its mean minus the "
    "frequency of class 1."
)
ADDS = (
    "The last column is the NLL of the mixture without the member minus that with it; above 0 the "
    "member helps."
)


def ensemble_page(result: Ensemble) -> str:
    """Return the self-contained page of a mixture of runs."""
    evaluation = result.evaluation
    blocks = [
        headline(evaluation),
        tiles(key_numbers(evaluation)),
        figures(evaluation),
        members_table(result),
        metrics_tables(evaluation),
        class_table(evaluation) if evaluation.per_class else "",
        footer(evaluation),
    ]
    return page(f"{verdict(evaluation).sentence} – {evaluation.source}", "\n".join(blocks))


def members_table(result: Ensemble) -> str:
    """Return one row per member, and the mixture below them."""
    rows = [
        (
            member.name,
            100 * member.accuracy,
            member.nll,
            100 * member.ece,
            100 * member.gap,
            member.nll_gain,
        )
        for member in result.members
    ]

    metrics = result.evaluation.metrics
    rows.append(
        (
            "mixture",
            100 * metrics["accuracy"].value,
            metrics["nll"].value,
            100 * metrics["ece"].value,
            100 * result.evaluation.gap.value,
            None,
        )
    )

    header = ("member", "accuracy, %", "NLL", "ECE, points", "gap, points", "adds (NLL)")
    formats = ("", ".2f", ".4f", ".2f", "+.2f", "+.4f")
    about = CLASS_ONE_NOTE if result.evaluation.class_one else NOTE
    note = f"{result.sentence}. {about} {ADDS}"
    return section("Members and mixture", note, table(header, rows, formats, True), name="members")
