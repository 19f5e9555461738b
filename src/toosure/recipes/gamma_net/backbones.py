"""gamma-net on other backbones: DenseNet-40 and a small vision transformer, beside CE."""

from dataclasses import replace

from toosure.config import RunConfig
from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.scored_rows import (
    Row,
    Rows,
    by_name,
    configs_of,
    protocol_row,
    score_rows,
)
from toosure.recipes.gamma_net import common
from toosure.recipes.gamma_net.rows import ONE_RATE, unrounded
from toosure.recipes.gamma_net.sweeps import single_data
from toosure.recipes.recipe import Claim, Findings, Setting, Table, claim_without_runs
from toosure.recipes.run_store import RunStore

# The network, its small version for quick runs, and the optimizer of both methods.
BACKBONES: dict[str, tuple[str, str, str]] = {
    "DenseNet-40": ("densenet40", "densenet:depth=10,growth=4", "sgd"),
    "small ViT": (
        "vit",
        "vit:width=16,depth=1,heads=2",
        "adamw:lr=0.001,weight_decay=0.05",
    ),
}
METHODS = {"CE": "", ONE_RATE: "+gamma_net:lr=0.001,level_lr=none"}
NOTE = (
    "As the tables by the common protocol, with another network: 5,273 steps of batch 256, cosine "
    "with 200 steps of warm-up, crops and flips, bf16. DenseNet-40 is trained by SGD 0.1, the ViT "
    "by AdamW with rate .001 and decay .05. gamma-net learns at one rate, its default when these "
    "runs were made. One run each: reported, not judged."
)


def backbone_rows(setting: Setting) -> list[Row]:
    """Return two methods on each backbone, by the common protocol."""
    data = single_data(setting, "cifar10")
    rows = []
    for backbone, (model, small, optimizer) in BACKBONES.items():
        size = replace(protocol.COMMON, model=model)
        for method, word in METHODS.items():
            name = f"{backbone}, {method}"
            row = protocol_row(setting, name, optimizer + word, data, setting.seeds_or(0), size)
            if setting.quick:
                row = replace(row, configs=tuple(replace(c, model=small) for c in row.configs))
            rows.append(row)
    return rows


def configs(setting: Setting) -> list[RunConfig]:
    """Return every run."""
    return configs_of(backbone_rows(setting))


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the table, and a claim without a verdict per backbone."""
    scored, _ = score_rows(setting, store, backbone_rows(setting))
    rows = by_name(scored)

    cells = tuple(common.row_cells(row) for row in scored if row.records)
    table = Table("Other backbones", common.HEADER, cells, NOTE)
    claims = [backbone_claim(name, rows) for name in BACKBONES]
    return Findings(claims, [table], dict(unrounded(rows)))


def backbone_claim(backbone: str, rows: Rows) -> Claim:
    """Report ECE and accuracy of gamma-net beside cross-entropy."""
    statement = f"{backbone}: gamma-net has less ECE than cross-entropy"
    ce, ours = (rows[f"{backbone}, {method}"] for method in METHODS)
    if not ce.records or not ours.records:
        return claim_without_runs(statement)

    found = (
        f"ECE {100 * ours.mean('ece'):.2f} : {100 * ce.mean('ece'):.2f}, accuracy "
        f"{100 * ours.mean('accuracy'):.1f} : {100 * ce.mean('accuracy'):.1f} % "
        f"(n = {len(ours.records)} : {len(ce.records)})"
    )
    return Claim(
        statement, found, "an open question", None, "reported only: one run each is asked for"
    )
