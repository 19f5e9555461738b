"""The right half of Table 1: AUROC of CIFAR-10 test images against unknown images."""

from collections.abc import Sequence

from toosure.recipes.benchmark.scored_rows import ScoredRow
from toosure.recipes.benchmark.shift_scores import auroc_against, fewest_images
from toosure.recipes.recipe import Table
from toosure.recipes.series import NOTHING, in_points, mean_std_text

# A set of unknown images -> the paper's column, or None.
SETS: dict[str, str | None] = {
    "svhn": "SVHN",
    "corrupted": "CIFAR10-C",
    "cifar100-c": "CIFAR100-C",
    "cifar100": None,
}
NOTE = (
    "AUROC in per cent of the largest probability, CIFAR-10 test images against others. Ours: the "
    "SVHN images at hand; the test images themselves under 15 corruptions at 5 severities made "
    "here; CIFAR-100 test images, each under one of these in turn; the same images clean, which "
    "the paper does not have. The paper does not say its score, nor which corruptions and "
    "severities it averages. A run has these numbers if it was trained with `--shift all` "
    "(`--ood svhn=FILE.npz` for SVHN)."
)


def unknown_data(scored: Sequence[ScoredRow]) -> Table:
    """Return our AUROCs beside the paper's; a dash if no run of a row was judged."""
    header = (
        *("row", "seeds", *SETS),
        *(f"paper: {column}" for column in SETS.values() if column is not None),
    )
    rows = tuple(row_cells(each) for each in scored if each.records)
    return Table("Unknown data (Table 1, right half), cifar10", header, rows, NOTE)


def row_cells(scored: ScoredRow) -> tuple[str, ...]:
    """Return the cells of one row."""
    some = fewest_images(scored.records)
    remark = f", {some:,} images" if some else ""
    texts = [
        mean_std_text(in_points(auroc_against(record, name) for record in scored.records))
        for name in SETS
    ]
    ours = [text if text == NOTHING else text + remark for text in texts]
    papers = [scored.row.figures.get(column, "–") for column in SETS.values() if column is not None]
    return scored.row.label, str(len(scored.records)), *ours, *papers


def values_of_unknown(scored: Sequence[ScoredRow]) -> dict[str, object]:
    """Return the unrounded AUROCs of each row, per seed."""
    return {
        f"{each.row.name}/unknown": [
            {name: auroc_against(record, name) for name in SETS} for record in each.records
        ]
        for each in scored
    }
