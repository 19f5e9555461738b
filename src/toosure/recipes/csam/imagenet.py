"""Tables 2 and S14 and Figure S4: our ImageNet runs beside the paper's figures."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import Row, score_rows
from toosure.recipes.csam import figure_claims, figure_data, imagenet_rows
from toosure.recipes.csam.imagenet_c import CORRUPTIONS
from toosure.recipes.csam.theory_figures import theory_drawing, theory_table
from toosure.recipes.recipe import (
    Claim,
    Drawing,
    Findings,
    Setting,
    Table,
    claims_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore

Known = Mapping[str, Record]  # by the name of the row
TITLE = "SAM's theory along training, ViT-S/32, ImageNet, rho .2 (Figure S4)"
SCORES = {
    "accuracy": "accuracy",
    "ECE": "ece",
    "AdaECE": "adaptive_ece",
    "AUROC": "auroc_ovr_binned",
}
NOT_JUDGED = (
    "the corrupted images were not judged: put imagenet-c/ with motion_blur, defocus_blur and "
    "impulse_noise at severities 1 to 5 below --data-root, and repeat the command"
)
NOTE = (
    "80 % of the published validation images; the other 20 %, drawn by seed, choose the moment of "
    "least NLL and fit the temperature of TCE, and their corrupted twins are left out of "
    "ImageNet-C. C1 motion blur, C2 defocus blur, C3 impulse noise, means over severities 1 to 5. "
    "One run per row, as in the paper. Ours where it is silent: rate, decay, batch, warm-up and "
    "gamma; images are shifted and mirrored."
)


def read_records(setting: Setting, store: RunStore) -> dict[str, Record]:
    """Score the runs that are new; return the records by row."""
    scored, _ = score_rows(setting, store, imagenet_rows.all_rows(setting))
    return {each.name: each.records[0] for each in scored if each.records}


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return both tables, the claims on optimizers and losses, and Figure S4."""
    known = read_records(setting, store)
    claims: list[Claim] = []
    for network in imagenet_rows.NETWORKS:
        claims += order_claims(setting, network, known)

    claims += loss_claims(setting, known)

    theory = figure_data.theory_of(known.get("ViT-S/32/SAM"))
    where = "ViT-S/32, ImageNet"
    shown_at = imagenet_rows.PATHS_SHOWN_AT
    reason = quick_reason(setting)
    claims += figure_claims.theory_claims("S4", where, theory, shown_at, reason)
    tables = tables_of(setting, known)
    if theory is not None:
        tables.append(theory_table(TITLE, theory))
    return Findings(claims, tables, {name: record.test for name, record in known.items()})


def drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return Figure S4 if its run exists."""
    theory = figure_data.theory_of(read_records(setting, store).get("ViT-S/32/SAM"))
    if theory is None:
        return []
    return [theory_drawing("fig-s4", TITLE, theory, imagenet_rows.PATHS_SHOWN_AT)]


# -- tables ---------------------------------------------------------------------------------------


def tables_of(setting: Setting, known: Known) -> list[Table]:
    """Return our scores beside the paper's; three runs are in both tables."""
    tables = {
        "ImageNet-1K (Table 2)": imagenet_rows.table_2(setting),
        "ImageNet-1K, losses (Table S14)": imagenet_rows.table_s14(setting),
    }
    return [table(title, known, rows) for title, rows in tables.items()]


def table(title: str, known: Known, rows: Sequence[Row]) -> Table:
    """Return the table of the rows that have a run."""
    shown = [row for row in rows if row.name in known]
    columns = list(dict.fromkeys(name for row in shown for name in row.figures))
    ours = (*SCORES, "TCE", *(f"acc {c}" for c in CORRUPTIONS), *(f"ECE {c}" for c in CORRUPTIONS))
    header = ("row", "network, epochs", *ours, *(f"paper: {name}" for name in columns))
    cells = [
        (*row_cells(row, known[row.name]), *(row.figures[name] for name in columns))
        for row in shown
    ]
    return Table(title, header, tuple(cells), NOTE)


def row_cells(row: Row, record: Record) -> tuple[str, ...]:
    """Return the cells of our part of one row; a dash if the corrupted images were not judged."""
    numbers = [record.test[key] for key in SCORES.values()]
    numbers.append(record.test_after_temperature["ece"])
    texts = [f"{100 * number:.2f}" for number in numbers]
    for metric in ("accuracy", "ece"):
        for corruption in CORRUPTIONS.values():
            scores = (record.corrupted or {}).get(corruption)
            texts.append("–" if scores is None else f"{100 * scores[metric]:.2f}")

    config = record.config
    epochs = config.steps * (config.batch or 0) / imagenet_rows.TRAINING_IMAGES
    words = f"{row.name} (`{config.optimizer}`)"
    return words, f"{config.model}, {epochs:.0f}", *texts


# -- claims ---------------------------------------------------------------------------------------


def order_claims(setting: Setting, network: str, known: Known) -> list[Claim]:
    """Judge on one network whether accuracy rises and ECE falls from the base to SAM to CSAM."""
    names = [f"{network}/{name}" for name in imagenet_rows.NETWORKS[network].optimizers]
    base = imagenet_rows.NETWORKS[network].base
    accuracy = f"{network}: accuracy rises from {base} to SAM to CSAM"
    errors = {"clean": f"{network}: ECE falls from {base} to SAM to CSAM"}
    for corruption in CORRUPTIONS.values():
        errors[corruption] = f"{network}, {corruption}: ECE falls from {base} to SAM to CSAM"
    if not all(name in known for name in names):
        return claims_without_runs(accuracy, *errors.values())

    records = [known[name] for name in names]
    accuracies = [-record.test["accuracy"] for record in records]
    claims = [falling_claim(setting, accuracy, accuracies, "%")]
    for where, statement in errors.items():
        values = [error_of(record, where) for record in records]
        if None in values:
            claims.append(Claim(statement, "–", note=NOT_JUDGED))
        else:
            numbers = [value for value in values if value is not None]
            claims.append(falling_claim(setting, statement, numbers, "points"))
    return claims


def error_of(record: Record, where: str) -> float | None:
    """Return the ECE on clean images or under a corruption, or None if it is unknown."""
    if where == "clean":
        return record.test["ece"]
    scores = (record.corrupted or {}).get(where)
    return None if scores is None else scores["ece"]


def falling_claim(setting: Setting, statement: str, values: Sequence[float], unit: str) -> Claim:
    """Judge whether numbers fall from one optimizer to the next."""
    return judge(
        statement,
        found=", ".join(f"{100 * abs(value):.2f}" for value in values) + f" {unit}",
        paper="yes",
        holds=all(a > b for a, b in pairwise(values)),
        rule="ours: by one run each, as in the paper",
        reasons=[quick_reason(setting)],
    )


def loss_claims(setting: Setting, known: Known) -> list[Claim]:
    """Judge whether SAM and CSAM are more accurate and better calibrated than each loss (S14)."""
    losses = [f"ViT-S/32/{name}" for name in imagenet_rows.LOSSES]
    accuracy = "ViT-S/32: SAM and CSAM are more accurate than each of four losses"
    statement = "SAM and CSAM have a lower ECE than each of four losses"
    errors = {"clean": f"ViT-S/32: {statement}"}
    errors |= {where: f"ViT-S/32, {where}: {statement}" for where in CORRUPTIONS.values()}
    names = ["ViT-S/32/SAM", "ViT-S/32/CSAM", *losses]
    if not all(name in known for name in names):
        return claims_without_runs(accuracy, *errors.values())

    records = [known[name] for name in names]
    accuracies = [-record.test["accuracy"] for record in records]
    claims = [best_claim(setting, accuracy, names, accuracies, "yes")]
    for where, sentence in errors.items():
        values = [error_of(record, where) for record in records]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(values):
            claims.append(Claim(sentence, "–", note=NOT_JUDGED))
            continue
        paper = "yes (text); MBLS is below SAM in its table" if where == "clean" else "yes"
        claims.append(best_claim(setting, sentence, names, numbers, paper))
    return claims


def best_claim(
    setting: Setting, statement: str, names: Sequence[str], values: Sequence[float], paper: str
) -> Claim:
    """Judge whether the first two numbers, SAM and CSAM, lie below all others."""
    short = [name.rpartition("/")[2] for name in names]
    return judge(
        statement,
        found=", ".join(f"{n} {100 * abs(v):.2f}" for n, v in zip(short, values, strict=True)),
        paper=paper,
        holds=max(values[:2]) < min(values[2:]),
        rule="ours: both, by one run each, as in the paper",
        reasons=[quick_reason(setting)],
    )


def quick_reason(setting: Setting) -> str:
    """Return the reason not to judge a small trial; empty for full runs."""
    return "judged on ImageNet only" if setting.quick else ""
