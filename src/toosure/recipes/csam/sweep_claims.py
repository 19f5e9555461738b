"""What the paper reads from Figures S5 and S6, and the rules that judge it here.

The rules were written before any of these runs was trained.
"""

from collections.abc import Mapping

import numpy as np

from toosure.recipes.recipe import Claim, Setting, claims_without_runs, judge, missing_runs

CLEARLY_WORSE = 0.5  # points of ECE that count as clearly worse
Numbers = Mapping[float, Mapping[str, float]]  # by radius or gamma: accuracy, ECE, entropy


# -- Figure S5 ------------------------------------------------------------------------------------


def radius_claims(
    setting: Setting,
    where: str,
    numbers: Numbers,
    expected_runs: int,
    has_inner_optimum: bool,
) -> list[Claim]:
    """Judge whether H(p_y) and accuracy rise with the radius.

    With `has_inner_optimum`, as the paper shows on CIFAR-10, accuracy rises, then falls, and ECE
    falls, then rises. The paper says nothing about ECE on CIFAR-100.
    """
    sentences = {"entropy": f"{where}: H(p_y) rises with rho"}
    if has_inner_optimum:
        sentences["accuracy"] = f"{where}: accuracy rises with rho, then falls"
        sentences["ece"] = f"{where}: ECE falls with rho, then rises"
    else:
        sentences["accuracy"] = f"{where}: accuracy rises with rho"
    if not numbers:
        return claims_without_runs(*sentences.values())

    reasons = [setting.why_not_judged_on_cifar, missing_runs(len(numbers), expected_runs)]
    return [
        radius_claim(statement, key, numbers, has_inner_optimum and key != "entropy", reasons)
        for key, statement in sentences.items()
    ]


def radius_claim(
    statement: str,
    key: str,
    numbers: Numbers,
    has_inner_optimum: bool,
    reasons: list[str],
) -> Claim:
    """Judge whether one number rises with the radius, or is best at a radius in between."""
    radii = sorted(numbers)
    values = np.array([numbers[rho].get(key, np.nan) for rho in radii])
    found = ", ".join(f"{rho:g}: {value:.3g}" for rho, value in zip(radii, values, strict=True))
    if not np.isfinite(values).all():
        reasons = [*reasons, "examples of a run were not kept"]

    holds = bool((np.diff(values) > 0).all())
    rule = "ours: from radius to radius, one seed"
    if has_inner_optimum:
        best = int(np.argmin(values) if key == "ece" else np.argmax(values))
        holds = 0 < best < len(radii) - 1
        rule = "ours: the best radius is neither the first nor the last, one seed"
    return judge(
        statement, found=found, paper="yes (Figure S5)", holds=holds, rule=rule, reasons=reasons
    )


def capacity_claims(
    setting: Setting,
    data: str,
    small: Numbers,
    large: Numbers,
    expected_runs: int,
    has_inner_optimum: bool,
) -> list[Claim]:
    """Judge whether ResNet-56 is worse calibrated than ResNet-20 at the smallest radius.

    With `has_inner_optimum`, also judge whether it is better calibrated at the largest radius.
    """
    sentences = [f"{data}: at the smallest rho ResNet-56 has a higher ECE than ResNet-20"]
    if has_inner_optimum:
        sentences.append(f"{data}: at the largest rho ResNet-56 has a lower ECE than ResNet-20")
    shared = sorted(set(small) & set(large))
    if not shared:
        return claims_without_runs(*sentences)

    missing = missing_runs(len(small) + len(large), 2 * expected_runs)
    claims = []
    for statement, rho in zip(sentences, (shared[0], shared[-1]), strict=False):
        deep = large[rho]["ece"]
        shallow = small[rho]["ece"]
        claims.append(
            judge(
                statement,
                found=f"rho {rho:g}: {deep:.2f} : {shallow:.2f}",
                paper="yes (Figure S5)",
                holds=deep > shallow if statement is sentences[0] else deep < shallow,
                rule="ours: at that radius, one seed",
                reasons=[setting.why_not_judged_on_cifar, missing],
            )
        )
    return claims


# -- Figure S6 ------------------------------------------------------------------------------------


def gamma_claims(setting: Setting, numbers: Numbers) -> list[Claim]:
    """Judge Figure S6: gamma .5 helps, gamma 1 calibrates best, gamma 2 and more is worse."""
    helps = "gamma .5 improves accuracy and ECE over SAM"
    least = "the least ECE is at gamma 1"
    worse = "gamma 2 and more is clearly worse calibrated"
    if not {0.0, 0.5, 1.0} <= set(numbers):
        return claims_without_runs(helps, least, worse)

    errors = {gamma: numbers[gamma]["ece"] for gamma in sorted(numbers)}
    accuracies = {gamma: numbers[gamma]["accuracy"] for gamma in (0.0, 0.5)}
    best = min(errors, key=lambda gamma: errors[gamma])
    found = ", ".join(f"{gamma:g}: {error:.2f}" for gamma, error in errors.items())
    large = [error for gamma, error in errors.items() if gamma >= 2]
    reasons = [setting.why_not_judged_on_cifar, missing_runs(len(numbers), 7)]
    return [
        judge(
            helps,
            found=f"accuracy {accuracies[0.0]:.2f} to {accuracies[0.5]:.2f}, ECE {errors[0.0]:.2f} "
            f"to {errors[0.5]:.2f}",
            paper="yes (Figure S6)",
            holds=errors[0.5] < errors[0.0] and accuracies[0.5] > accuracies[0.0],
            rule="ours: both, one seed",
            reasons=reasons,
        ),
        judge(
            least,
            found=f"at {best:g}; {found}",
            paper="yes (text); at 1.5 by Table S4",
            holds=best == 1.0,
            rule="ours: of all gammas, one seed",
            reasons=reasons,
        ),
        judge(
            worse,
            found=found,
            paper="yes (text)",
            holds=bool(large) and min(large) > errors[best] + CLEARLY_WORSE,
            rule=f"ours: each at least {CLEARLY_WORSE} points above the least, one seed",
            reasons=reasons,
        ),
    ]
