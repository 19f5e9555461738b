"""Our scores beside the paper's figures, row by row."""

from collections.abc import Iterable, Sequence

from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import Row, ScoredRow, by_data
from toosure.recipes.csam.rows import length_text
from toosure.recipes.recipe import Claim, Table
from toosure.recipes.series import in_points, mean_std_text

SCORES: dict[str, tuple[str, str]] = {
    "accuracy": ("accuracy", ".2f"),
    "ECE": ("ece", ".2f"),
    "debiased ECE": ("debiased_ece", ".2f"),
    "smECE": ("smece", ".2f"),
    "classwise ECE": ("classwise_ece", ".3f"),
    "AdaECE": ("adaptive_ece", ".2f"),
    "AUROC": ("auroc_ovr_binned", ".2f"),
}
NOTE = (
    "Test images at the end of training, 15 bins, in per cent and points, mean ± standard "
    "deviation over seeds. TCE is the ECE after a temperature fitted on the validation images. "
    "AUROC, which the paper does not define, is one-vs-rest on 15 thresholds. Network and length "
    "of the paper: {papers}."
)


def tables(rows: Sequence[ScoredRow], title: str, papers: str) -> list[Table]:
    """Return one table per data set: our columns, then the paper's."""
    result = []
    for data, group in by_data(rows).items():
        columns = list(dict.fromkeys(name for scored in group for name in scored.row.figures))
        sharp = any(record.sharpness is not None for s in group for record in s.records)
        header = (
            *("row", "network, epochs", "seeds", *SCORES, "TCE"),
            *(("kappa_max",) if sharp else ()),
            *(f"paper: {name}" for name in columns),
        )
        cells = tuple(row_cells(scored, columns, sharp) for scored in group if scored.records)
        result.append(Table(f"{title}, {data}", header, cells, NOTE.format(papers=papers)))
    return result


def row_cells(scored: ScoredRow, columns: Sequence[str], sharp: bool) -> tuple[str, ...]:
    """Return the cells of one row."""
    row = scored.row
    cells = [row.label, trained_text(scored), str(len(scored.records))]
    for key, form in SCORES.values():
        cells.append(mean_std_text(scored.points(key), form))

    after = [error_after(record) for record in scored.records]
    cells.append(mean_std_text(in_points(after), ".2f"))
    if sharp:
        cells.append(mean_std_text([record.sharpness for record in scored.records], ".1f"))
    return *cells, *(row.figures.get(name, "–") for name in columns)


def trained_text(scored: ScoredRow) -> str:
    """Return the network and its epochs, or for a small trial what was trained instead."""
    config = scored.records[0].config
    data = config.data.partition(":")[0]
    if data == scored.row.data:
        return length_text(scored.row)
    return f"{config.model}, {config.steps} steps on {data}"


def error_after(record: Record) -> float | None:
    """Return the ECE after a temperature, or None for a mixture without one."""
    return record.test_after_temperature.get("ece")


def values_of(rows: Iterable[ScoredRow]) -> dict[str, object]:
    """Return the unrounded scores of each row."""
    return {
        f"{scored.row.data}/{scored.row.name}/{scored.row.size.model}": [
            {**record.test, "tce": error_after(record)} for record in scored.records
        ]
        for scored in rows
    }


def unavailable_rows(rows: Iterable[Row]) -> list[Claim]:
    """Return a claim without a verdict for each row that has an unknown word."""
    reasons = {row.name: protocol.unknown_word_error(row.method) for row in rows}
    return [Claim(f"row {name}", "–", note=why) for name, why in reasons.items() if why]
