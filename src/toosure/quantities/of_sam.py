"""Numbers of the step that SAM would take on one batch: `--measure sam_theory`.

All are of cross-entropy on one fixed batch of the training split, in train mode (Tan et al., 2026,
Sec. 4). theta~ is theta + rho g / |g|.
"""

from toosure.quantities.quantity import Quantity


def of_sam_step(
    key: str, name: str, says: str, label: str = "", form: str = ".4g", shown: int | None = None
) -> Quantity:
    """Return one entry of `sam_theory`, measured on the training split alone."""
    return Quantity(
        key,
        name,
        says,
        label=label,
        form=form,
        splits=("train",),
        cost="sam_step",
        measure="sam_theory",
        shown={} if shown is None else {"panel": shown},
    )


# Where on the way from theta to theta~ the Hessian is looked at, and the key of each place.
SAM_PATH = {
    0.0: "sam_kappa_min",
    0.25: "sam_kappa_min_25",
    0.5: "sam_kappa_min_50",
    0.75: "sam_kappa_min_75",
    1.0: "sam_kappa_min_perturbed",
}

OF_SAM = (
    of_sam_step(
        "sam_kappa_min",
        "smallest eigenvalue at theta",
        "smallest eigenvalue of the Hessian of a batch, in train mode, where SAM's step starts",
        "kappa_min at theta",
        shown=31,
    ),
    *(
        of_sam_step(
            SAM_PATH[share],
            f"smallest eigenvalue {share:.0%} of the way",
            f"the same after {share:.0%} of the way from theta to theta~",
        )
        for share in (0.25, 0.5, 0.75)
    ),
    of_sam_step(
        "sam_kappa_min_perturbed",
        "smallest eigenvalue at theta~",
        "the same at the perturbed point theta~, where SAM takes its gradient",
        "kappa_min at theta~",
        shown=32,
    ),
    of_sam_step(
        "sam_kappa_bound",
        "bound of the lemmas",
        "-|g| / rho: Lemmas 1 and 2 ask that no smallest eigenvalue on the way lies below it",
        "-|g| / rho",
    ),
    of_sam_step(
        "sam_lambda",
        "lambda of Eq. 2",
        "(1 - p~_y) / (1 - p_y): how strongly the step penalises a low entropy of the label",
        "lambda",
        shown=33,
    ),
    of_sam_step(
        "sam_lambda_0",
        "lambda_0 of Eq. 2",
        "lower bound of lambda; absent where exp(rho |g| / 2) p~_y is not below 1",
        "lambda_0",
        shown=34,
    ),
    of_sam_step(
        "sam_p_y",
        "probability of the label",
        "geometric mean over the batch of the label's probability, at theta",
        "p_y",
    ),
    of_sam_step(
        "sam_p_y_perturbed",
        "probability of the label at theta~",
        "the same at theta~",
        "p~_y",
    ),
    of_sam_step(
        "sam_entropy",
        "entropy of the label",
        "mean over the batch of H(p_y) = -p log p - (1 - p) log(1 - p), at theta",
        "H(p_y)",
    ),
    of_sam_step(
        "sam_failed",
        "failed statements on SAM",
        "lemmas, theorems and equations of SAM's step that failed (none should)",
        form=".0f",
    ),
)
