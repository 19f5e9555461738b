"""Tables 2 and S14 and Figure S4: what the ImageNet runs show beside the paper's figures."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.score_files import score_files
from toosure.recipes.csam import figure_claims, figure_data, imagenet_rows
from toosure.recipes.csam.imagenet_c import CORRUPTIONS
from toosure.recipes.csam.imagenet_rows import ImageNetRow
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
NOTE = (
    "80 % of the published validation images; the other 20 %, drawn by seed, choose the moment of "
    "least NLL and fit the temperature of TCE, and their corrupted twins are left out of "
    "ImageNet-C. C1 motion blur, C2 defocus blur, C3 impulse noise, means over severities 1 to 5. "
    "One run per row, as in the paper. Ours where it is silent: rate, decay, batch, warm-up and "
    "gamma; images are shifted and mirrored."
)


def read_records(setting: Setting, store: RunStore) -> dict[str, Record]:
    """Score the runs that are new; return the records of all rows that have one."""
    rows = {row.name: row.config(setting) for row in imagenet_rows.all_rows()}
    files = score_files(setting)
    files.add(store.runs(rows.values()))
    return {
        name: files.records[config.name]
        for name, config in rows.items()
        if config.name in files.records
    }


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return both tables as one, the order of the optimizers on each network, and Figure S4."""
    known = read_records(setting, store)
    claims: list[Claim] = []
    for network in imagenet_rows.NETWORKS:
        claims += order_claims(setting, network, known)

    theory = figure_data.theory_of(known.get("ViT-S/32/SAM"))
    moments = imagenet_rows.PATH_MOMENTS
    claims += figure_claims.theory_claims(setting, "ViT-S/32, ImageNet", theory, moments)
    tables = [table(known)]
    if theory is not None:
        tables.append(theory_table(TITLE, theory))
    return Findings(claims, tables, {name: record.test for name, record in known.items()})


def drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return Figure S4, where its run is there."""
    theory = figure_data.theory_of(read_records(setting, store).get("ViT-S/32/SAM"))
    if theory is None:
        return []
    return [theory_drawing("fig-s4", TITLE, theory, imagenet_rows.PATH_MOMENTS)]


# -- table ----------------------------------------------------------------------------------------


def table(known: Known) -> Table:
    """Print our scores beside the paper's."""
    shown = [row for row in imagenet_rows.all_rows() if row.name in known]
    columns = list(dict.fromkeys(name for row in shown for name in row.figures))
    ours = (*SCORES, "TCE", *(f"acc {c}" for c in CORRUPTIONS), *(f"ECE {c}" for c in CORRUPTIONS))
    header = ("row", "network, epochs", *ours, *(f"paper: {name}" for name in columns))
    cells = tuple(row_cells(row, known[row.name], columns) for row in shown)
    return Table("ImageNet-1K (Tables 2, S14)", header, cells, NOTE)


def row_cells(row: ImageNetRow, record: Record, columns: Sequence[str]) -> tuple[str, ...]:
    """Print one row; a dash where the corrupted images were not judged."""
    numbers = [record.test[key] for key in SCORES.values()]
    numbers.append(record.test_after_temperature["ece"])
    texts = [f"{100 * number:.2f}" for number in numbers]
    for metric in ("accuracy", "ece"):
        for corruption in CORRUPTIONS.values():
            scores = (record.corrupted or {}).get(corruption)
            texts.append("–" if scores is None else f"{100 * scores[metric]:.2f}")

    config = record.config
    epochs = config.steps * (config.batch or 0) / imagenet_rows.TRAINING_IMAGES
    papers = (row.figures.get(name, "–") for name in columns)
    words = f"{row.name} (`{config.optimizer}`)"
    return words, f"{config.model}, {epochs:.0f}", *texts, *papers


# -- claims ---------------------------------------------------------------------------------------


def order_claims(setting: Setting, network: str, known: Known) -> list[Claim]:
    """Judge on one network: from the base to SAM to CSAM accuracy rises, and every ECE falls."""
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
    for where, says in errors.items():
        values = [error_of(record, where) for record in records]
        if None in values:
            claims.append(Claim(says, "–", note="the corrupted images were not judged"))
        else:
            numbers = [value for value in values if value is not None]
            claims.append(falling_claim(setting, says, numbers, "points"))
    return claims


def error_of(record: Record, where: str) -> float | None:
    """Return the ECE of clean images or of a corruption; None where it is not known."""
    if where == "clean":
        return record.test["ece"]
    scores = (record.corrupted or {}).get(where)
    return None if scores is None else scores["ece"]


def falling_claim(setting: Setting, says: str, values: Sequence[float], unit: str) -> Claim:
    """Judge whether numbers fall from one optimizer to the next."""
    return judge(
        says,
        found=", ".join(f"{100 * abs(value):.2f}" for value in values) + f" {unit}",
        paper="yes",
        holds=all(a > b for a, b in pairwise(values)),
        rule="ours: by one run each, as in the paper",
        unless=["judged on ImageNet only" if setting.quick else ""],
    )
