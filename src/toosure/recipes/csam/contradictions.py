"""Where the paper contradicts itself: between two tables, or between a table and its text."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations

from toosure.recipes.csam import paper
from toosure.recipes.csam.paper_networks import NETWORKS
from toosure.recipes.recipe import Table

# The text, a proof or a single run against a table. `differing_figures` compares two tables.
IN_TEXT = {
    "the backbone of Tables 3 and S5": "WRN-20-10, which does not exist (Sec. 5.3); their figures "
    "are those of WRN-28-10 (S6 to S10)",
    "SGD against SAM, CIFAR-10, ResNet-56: ratio of ECE": "about 6 (Figure 3), 1.9 (S11)",
    "SAM raw below SGD after a temperature": "generally (Figure 3), not on CIFAR-10 (S11)",
    "SAM, CIFAR-10, ResNet-56, rho .05: ECE": "1.77 (S4), 1.83 (S11)",
    "CSAM, CIFAR-10, ResNet-56, rho .05: gamma of least ECE": "1 (Figure S6), 1.5 (S4)",
    "a small rho wants a large gamma": "yes (App. B); on CIFAR-100 the least ECE is at the same "
    "gamma for both radii (S4, of the columns we have)",
    "CSAM has the lowest error of all": "always (Sec. 5.3); the TCE of BatchEnsemble is lower, .41 "
    "against .47 (3), and that of ASAM (S11, S12)",
    "CSAM is better than SAM": "consistently (Sec. 1); its accuracy is lower in Tables 1 and S12",
    "MC-Dropout hurts AUROC against unknown data": "for both optimizers (Sec. 5.2); for SGD it "
    "rises against SVHN (1)",
    "focal loss hurts accuracy": "generally (Sec. 5.3); on CIFAR-10 it is above CE (3)",
    "ASAM generalises much worse than SAM": "yes (App. C); on CIFAR-10 it is above SAM (S11)",
    "label smoothing and its variants hurt accuracy": "yes (App. C); all are above SGD (S13)",
    "SAM's ECE is below that of the losses on ImageNet": "yes (App. C); that of MBLS is lower, "
    "2.21 against 2.47 (S14)",
    "CE, CIFAR-100, WRN-28-10: accuracy": "81.01 (S5), 81.04 (S6), both ± .11",
    "ImageNet, ViT-S/32: ECE of SAM, CSAM": "3.04, 2.88 (2); 2.47, 1.79 (S14)",
    "ImageNet, ViT-S/32: the base optimizer": "AdamW (2), SGD (S14)",
    "ImageNet, ViT-S/32: the hardest corruption": "impulse noise (2), defocus blur (S14)",
    "Lemma 1: the fall of log p_y": "rho |g|^2 / 2 (printed), rho |g| / 2 (its proof, Eq. 2)",
}
NOTE = (
    "Named, not settled. First what the text, a proof or single runs say against a table; then "
    "figures that two tables print of the same method, network and data, where they lie apart by "
    "more than the sum of their deviations. Radii may differ between tables: the paper gives them "
    "by section."
)
NETWORK_TABLES = dict(
    zip(("accuracy", "ECE", "classwise ECE", "AdaECE", "AUROC"), range(6, 11), strict=True)
)
ROUNDING = 1e-9  # of differences of printed figures
Cell = tuple[str, str]  # row, "SAM, CIFAR-10, ResNet-56", and column
Printed = dict[str, str]  # figure by name of the table


def contradictions() -> Table:
    """Return the table of all contradictions."""
    rows = [*IN_TEXT.items(), *differing_figures().items()]
    title = "Where the paper contradicts itself"
    return Table(title, ("what", "as it says"), tuple(rows), NOTE)


def differing_figures() -> dict[str, str]:
    """Return the figures that two tables print differently, with the names of the tables."""
    return {
        f"{row}: {column}": ", ".join(f"{figure} ({name})" for name, figure in figures.items())
        for (row, column), figures in figures_by_cell().items()
        if any(disagree(a, b) for a, b in combinations(figures.values(), 2))
    }


def disagree(first: str, second: str) -> bool:
    """Whether two figures differ by more than the sum of their deviations.

    >>> disagree("2.21 ± 1.11", "4.66 ± 1.11"), disagree("94.50 ± .20", "94.26 ± .06")
    (True, False)
    """
    mean, deviation = map(float, first.split(" ± "))
    other_mean, other_deviation = map(float, second.split(" ± "))
    return abs(mean - other_mean) > deviation + other_deviation + ROUNDING


def figures_by_cell() -> Mapping[Cell, Printed]:
    """Return the figures that each table prints, by row and column. SGD and CE are one row."""
    cells: dict[Cell, Printed] = defaultdict(dict)
    for name, where, table in tables():
        for method, figures in table.items():
            row = f"{method if method != 'SGD' else 'CE'}, {where}"
            for column, figure in figures.items():
                if figure != "–":
                    cells[row, column][name or f"S{NETWORK_TABLES[column]}"] = figure
    return cells


def tables() -> list[tuple[str, str, paper.PaperTable]]:
    """Return name, network and figures of each table over seeds; S6 to S10 are unnamed here."""
    ten = "CIFAR-10"
    hundred = "CIFAR-100"
    named_tables = [
        ("3", f"{ten}, WRN-28-10", paper.TABLE_3),
        ("S5", f"{hundred}, WRN-28-10", paper.TABLE_S5),
    ]

    names = {"cifar10": ten, "cifar100": hundred, "tiny_imagenet": "Tiny-ImageNet"}
    named_tables += [
        ("", f"{names[data]}, {network}", table) for (data, network), table in NETWORKS.items()
    ]

    named_tables += [
        ("S11", f"{ten}, ResNet-56", paper.TABLE_S11),
        ("S12", f"{hundred}, ResNet-56", paper.TABLE_S12),
        ("S13", f"{hundred}, ResNet-56", paper.TABLE_S13),
        ("S15", f"{hundred}, ResNet-56", paper.TABLE_S15),
        ("S15", f"{hundred}, WRN-28-10", paper.TABLE_S15_WRN),
        ("S16", f"{hundred}, ResNet-56", paper.TABLE_S16),
    ]
    return named_tables
