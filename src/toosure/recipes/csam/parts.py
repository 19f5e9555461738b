"""The tables of each part beside the paper's, and the claims on them."""

import re

from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.scored_rows import (
    Rows,
    ScoredRow,
    by_data,
    by_name,
    score_rows,
    why_not_judged,
)
from toosure.recipes.csam import claims, ensemble_rows, ood_claims, rows
from toosure.recipes.csam.contradictions import contradictions
from toosure.recipes.csam.tables import tables, unavailable_rows, values_of
from toosure.recipes.csam.unknown_data import unknown_data, values_of_unknown
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore

LONGER = "at least 200 epochs of batch 128"
RULES = Table(
    "How the order of SGD, SAM and CSAM is judged",
    ("", "rule"),
    (
        (
            "settings",
            "by the common protocol each method has the setting of least validation NLL at seed 0 "
            "on that data set, so that SAM and CSAM may differ in rho; ResNet-56 has the paper's "
            "rho for SAM and CSAM, and our gamma and radii of ASAM and VASSO",
        ),
        ("ECE", claims.LOWER_RULE),
        (
            "accuracy",
            f"{claims.MARGIN_RULE}: the usual test of non-inferiority, stricter than the mean",
        ),
        (
            "written",
            "when 44 runs of SGD, SAM, ASAM, VASSO and CSAM by the common protocol were already "
            "scored and known, so these verdicts are not blind; no other run was trained yet",
        ),
    ),
)


def networks_of(scored: list[ScoredRow]) -> dict[str, dict[str, ScoredRow]]:
    """Return rows by name, by data set and network: "cifar10, resnet18"."""
    groups: dict[str, dict[str, ScoredRow]] = {}
    for each in scored:
        where = f"{each.row.data}, {each.row.size.model}"
        groups.setdefault(where, {})[each.row.name] = each
    return groups


def sam_variants(setting: Setting, store: RunStore) -> Findings:
    """Return Tables S11 and S12, and the order of SGD, SAM and CSAM."""
    scored, examples = score_rows(setting, store, rows.sam_variants(setting))
    scores = PairedScores(examples)

    judged: list[Claim] = []
    for where, group in networks_of(scored).items():
        judged += claims.order_claims(setting, where, group, scores)
        judged.append(claims.temperature_claim(where, group))
    shown = tables(scored, "SAM variants (S11, S12)", f"ResNet-56, {LONGER}")
    return Findings(judged, [*shown, RULES], values_of(scored))


def baselines(setting: Setting, store: RunStore) -> Findings:
    """Return Tables 3 and S5, and whether CSAM is the best calibrated of all."""
    table_rows = rows.baselines(setting)
    scored, _ = score_rows(setting, store, table_rows)
    judged = [
        claims.lowest_error_claim(setting, data, by_name(group))
        for data, group in by_data(scored).items()
    ]
    shown = tables(scored, "Baselines (Tables 3, S5)", f"WRN-28-10, {LONGER}")
    return Findings(
        [*judged, *unavailable_rows(table_rows)], [*shown, contradictions()], values_of(scored)
    )


def losses(setting: Setting, store: RunStore) -> Findings:
    """Return Table S13, and whether CSAM is better calibrated than each loss."""
    table_rows = rows.losses(setting)
    scored, _ = score_rows(setting, store, table_rows)
    judged = [
        claims.lowest_error_claim(setting, f"losses, {data}", by_name(group))
        for data, group in by_data(scored).items()
    ]
    text = f"ResNet-56, {LONGER}"
    return Findings(
        [*judged, *unavailable_rows(table_rows)],
        tables(scored, "Calibration losses (S13)", text),
        values_of(scored),
    )


def grid(setting: Setting, store: RunStore) -> Findings:
    """Return Table S4, and the claims on small rho with large gamma and on a tuned gamma."""
    scored, _ = score_rows(setting, store, rows.grid(setting))

    judged = []
    for data, group in by_data(scored).items():
        errors = {}
        for each in group:
            rho, gamma = map(float, re.findall(r"[\d.]+", each.row.name))
            if not each.missing:
                errors[rho, gamma] = each.mean("ece")

        seeds = group[0].row.expected
        judged.append(claims.grid_claim(setting, data, errors, seeds))
        judged.append(claims.tuned_claim(setting, data, errors, seeds))

    text = f"ResNet-56, {LONGER}"
    return Findings(judged, tables(scored, "rho by gamma (S4)", text), values_of(scored))


def networks(setting: Setting, store: RunStore) -> Findings:
    """Return Tables S6 to S10, and the order of CE, SAM and CSAM on each network."""
    scored, examples = score_rows(setting, store, rows.networks(setting))
    scores = PairedScores(examples)

    judged: list[Claim] = []
    for where, group in networks_of(scored).items():
        by_method = {name.partition(": ")[2]: each for name, each in group.items()}
        by_method["SGD"] = by_method["CE"]
        judged += claims.order_claims(setting, where, by_method, scores)
    text = (
        f"the network that the row names, {LONGER}; on Tiny-ImageNet neither length nor rho is said"
    )
    return Findings(judged, tables(scored, "Networks (S6 to S10)", text), values_of(scored))


def combined(setting: Setting, store: RunStore) -> Findings:
    """Return Table S15: what SAM and CSAM add to two losses."""
    scored, _ = score_rows(setting, store, rows.combined(setting))
    named = by_name(scored)
    judged = [
        chain_claim(setting, named, f"{network}: {loss}")
        for network in ("ResNet-56", "WRN-28-10")
        for loss in ("FL", "ACLS")
    ]
    text = f"the network that the row names, {LONGER}"
    return Findings(judged, tables(scored, "On other losses (S15)", text), values_of(scored))


def chain_claim(setting: Setting, named: Rows, loss: str) -> Claim:
    """Judge whether ECE falls from a loss alone to SAM with it, and to CSAM with it."""
    network, _, word = loss.partition(": ")
    statement = f"{rows.name_of(setting, network)}: {word}: SAM lowers its ECE, and CSAM more"
    chain = [named[name] for name in (loss, f"{loss}+SAM", f"{loss}+CSAM")]
    if not all(each.records for each in chain):
        return claim_without_runs(statement)

    alone, sam, csam = (each.mean("ece") for each in chain)
    return judge(
        statement,
        found=f"{100 * alone:.2f}, {100 * sam:.2f}, {100 * csam:.2f}",
        paper=", ".join(each.row.figures["ECE"] for each in chain),
        holds=alone > sam > csam,
        rule="ours: by the mean over seeds",
        reasons=why_not_judged(setting, chain, several=chain),
    )


def sharpness(setting: Setting, store: RunStore) -> Findings:
    """Return Table S16: kappa_max beside ECE."""
    scored, _ = score_rows(setting, store, rows.sharpness(setting))
    judged = claims.sharpness_claims(setting, by_name(scored))
    text = (
        f"ResNet-56, {LONGER}; of which loss and on which split kappa_max is taken is not said. "
        f"Ours is that of cross-entropy on {protocol.CURVATURE_EXAMPLES:,} training images"
    )
    return Findings(judged, tables(scored, "Sharpness (S16)", text), values_of(scored))


def ood(setting: Setting, store: RunStore) -> Findings:
    """Return Table 1: accuracy and ECE of the test images, and AUROC against unknown ones."""
    scored, examples = score_rows(setting, store, ensemble_rows.ood(setting))
    judged = ood_claims.ood_claims(setting, by_name(scored), PairedScores(examples))
    text = (
        "ResNet-18, length not said; near 89 %, so short or without augmentation. Our ensembles "
        "are mixtures of five runs; where these were validated on different images, there is no TCE"
    )
    shown = tables(scored, "Ensembles (Table 1)", text)
    if any(each.records for each in scored):
        shown.append(unknown_data(scored))
    return Findings(judged, shown, values_of(scored) | values_of_unknown(scored))
