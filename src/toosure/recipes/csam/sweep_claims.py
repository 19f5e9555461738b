"""What the paper reads from Figures S5 and S6, with the rules by which it is judged here.

The rules were written before any of these runs was trained.
"""

from collections.abc import Mapping

import numpy as np

from toosure.recipes.recipe import Claim, Setting, claims_without_runs, judge, missing_runs

WORSE_BY = 0.5  # points of ECE that count as clearly worse
Numbers = Mapping[float, Mapping[str, float]]  # by radius or gamma: accuracy, ECE, entropy


# -- Figure S5 ------------------------------------------------------------------------------------


def radius_claims(
    setting: Setting,
    where: str,
    numbers: Numbers,
    wanted: int,
    turns: bool,
) -> list[Claim]:
    """Judge what a growing radius does: H(p_y) rises, accuracy too; on CIFAR-10 it `turns`.

    There accuracy rises, then falls, and ECE falls, then rises. Of the ECE on CIFAR-100 the paper
    says nothing.
    """
    sentences = {"entropy": f"{where}: H(p_y) rises with rho"}
    if turns:
        sentences["accuracy"] = f"{where}: accuracy rises with rho, then falls"
        sentences["ece"] = f"{where}: ECE falls with rho, then rises"
    else:
        sentences["accuracy"] = f"{where}: accuracy rises with rho"
    if not numbers:
        return claims_without_runs(*sentences.values())

    unless = [setting.why_not_judged_on_cifar, missing_runs(len(numbers), wanted)]
    return [
        radius_claim(says, key, numbers, turns and key != "entropy", unless)
        for key, says in sentences.items()
    ]


def radius_claim(
    says: str,
    key: str,
    numbers: Numbers,
    turns: bool,
    unless: list[str],
) -> Claim:
    """Judge one number over the radii: it rises, or (`turns`) is best at a radius in between."""
    radii = sorted(numbers)
    values = np.array([numbers[rho].get(key, np.nan) for rho in radii])
    found = ", ".join(f"{rho:g}: {value:.3g}" for rho, value in zip(radii, values, strict=True))
    if not np.isfinite(values).all():
        unless = [*unless, "examples of a run were not kept"]

    holds = bool((np.diff(values) > 0).all())
    rule = "ours: from radius to radius, one seed"
    if turns:
        best = int(np.argmin(values) if key == "ece" else np.argmax(values))
        holds = 0 < best < len(radii) - 1
        rule = "ours: the best radius is neither the first nor the last, one seed"
    return judge(says, found=found, paper="yes (Figure S5)", holds=holds, rule=rule, unless=unless)


def capacity_claims(
    setting: Setting, data: str, small: Numbers, large: Numbers, wanted: int, turns: bool
) -> list[Claim]:
    """Judge: ResNet-56 is worse calibrated than ResNet-20 while the ECE falls with rho.

    Where it `turns`, ResNet-56 is better calibrated after that.
    """
    sentences = [f"{data}: at the smallest rho ResNet-56 has a higher ECE than ResNet-20"]
    if turns:
        sentences.append(f"{data}: at the largest rho ResNet-56 has a lower ECE than ResNet-20")
    shared = sorted(set(small) & set(large))
    if not shared:
        return claims_without_runs(*sentences)

    missing = missing_runs(len(small) + len(large), 2 * wanted)
    claims = []
    for says, rho in zip(sentences, (shared[0], shared[-1]), strict=False):
        deep, shallow = large[rho]["ece"], small[rho]["ece"]
        claims.append(
            judge(
                says,
                found=f"rho {rho:g}: {deep:.2f} : {shallow:.2f}",
                paper="yes (Figure S5)",
                holds=deep > shallow if says is sentences[0] else deep < shallow,
                rule="ours: at that radius, one seed",
                unless=[setting.why_not_judged_on_cifar, missing],
            )
        )
    return claims


# -- Figure S6 ------------------------------------------------------------------------------------


def gamma_claims(setting: Setting, numbers: Numbers) -> list[Claim]:
    """Judge Figure S6: a little gamma helps, gamma 1 calibrates best, gamma 2 and more is worse."""
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
    unless = [setting.why_not_judged_on_cifar, missing_runs(len(numbers), 7)]
    return [
        judge(
            helps,
            found=f"accuracy {accuracies[0.0]:.2f} to {accuracies[0.5]:.2f}, ECE {errors[0.0]:.2f} "
            f"to {errors[0.5]:.2f}",
            paper="yes (Figure S6)",
            holds=errors[0.5] < errors[0.0] and accuracies[0.5] > accuracies[0.0],
            rule="ours: both, one seed",
            unless=unless,
        ),
        judge(
            least,
            found=f"at {best:g}; {found}",
            paper="yes (text); at 1.5 by Table S4",
            holds=best == 1.0,
            rule="ours: of all gammas, one seed",
            unless=unless,
        ),
        judge(
            worse,
            found=found,
            paper="yes (text)",
            holds=bool(large) and min(large) > errors[best] + WORSE_BY,
            rule=f"ours: each at least {WORSE_BY} points above the least, one seed",
            unless=unless,
        ),
    ]
