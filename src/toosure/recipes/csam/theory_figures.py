"""Figures 2 and S4: kappa_min, lambda and lambda_0 along a run of SAM."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from toosure.recipes.csam import figure_data, figure_rows
from toosure.recipes.csam.charts import Curve, Panel, draw
from toosure.recipes.csam.figure_data import FigureRuns, Theory
from toosure.recipes.recipe import Drawing, Setting, Table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def theory_drawings(setting: Setting, runs: FigureRuns) -> list[Drawing]:
    """Return Figure 2 if a run measured SAM's theory."""
    theory = theory_run(setting, runs)
    if theory is None:
        return []
    return [
        theory_drawing(
            "fig2",
            "SAM's theory along training, ResNet-56, CIFAR-10, rho .05 (Figure 2)",
            theory,
            figure_rows.PATHS_SHOWN_AT,
        )
    ]


def theory_run(setting: Setting, runs: FigureRuns) -> Theory | None:
    """Return the theory along the run of Figure 2, or None."""
    for _, record in runs.known(figure_rows.along_training(setting)):
        theory = figure_data.theory_of(record)
        if theory is not None:
            return theory
    return None


def theory_drawing(name: str, title: str, theory: Theory, shown_at: Sequence[float]) -> Drawing:
    """Return a figure of kappa_min at both ends and on the path, and of lambda and lambda_0."""
    return Drawing(
        name,
        title,
        "Left, the smallest eigenvalue of a batch's Hessian in train mode at theta and at the "
        "perturbed point, and the bound that the lemmas ask for; middle, on the way between them; "
        "right, lambda of Eq. 2 and its lower bound.",
        partial(draw_theory, theory, shown_at),
    )


def draw_theory(theory: Theory, shown_at: Sequence[float]) -> "Figure":
    """Draw the three panels of Figure 2."""
    ends = [
        Curve("kappa_min at theta", theory.epochs, theory.path[:, 0]),
        Curve("kappa_min at theta~", theory.epochs, theory.path[:, -1]),
        Curve("-|g| / rho", theory.epochs, theory.bound, "dash", quiet=True),
    ]
    way = [
        Curve(f"epoch {theory.epochs[row]:.0f}", theory.shares, theory.path[row])
        for row in dict.fromkeys(theory.rows_at(shown_at))
    ]
    coefficients = [
        Curve("lambda", theory.epochs, theory.lam),
        Curve("lambda_0", theory.epochs, theory.lam0, "dash"),
    ]

    return draw(
        [
            [
                Panel("both ends", "epoch", "smallest eigenvalue", ends),
                Panel("on the way", "t", "smallest eigenvalue", way),
                Panel("Eq. 2", "epoch", "", coefficients),
            ]
        ]
    )


def theory_table(title: str, theory: Theory) -> Table:
    """Return the numbers of Figure 2, row by row."""
    rows = []
    for row, epoch in enumerate(theory.epochs):
        path = ", ".join(f"{value:.3g}" for value in theory.path[row])
        numbers = (theory.bound[row], theory.lam[row], theory.lam0[row])
        rows.append((f"{epoch:.1f}", path, *(f"{number:.4g}" for number in numbers)))
    header = ("epoch", "kappa_min from theta to theta~", "-|g| / rho", "lambda", "lambda_0")
    note = (
        "Of cross-entropy on one fixed batch of training images, without augmentation, in train "
        "mode; eigenvalues to 2 %. lambda_0 is nan where Eq. 2 gives none."
    )
    return Table(title, header, tuple(rows), note)
