"""gamma-net on other backbones: DenseNet-40 and a small vision transformer, beside CE."""

from dataclasses import replace

from toosure.config import RunConfig
from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.score_files import score_files
from toosure.recipes.gamma_net import common
from toosure.recipes.gamma_net.rows import ONE_RATE, MethodRow, row_of
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


def run_config(setting: Setting, backbone: str, method: str, seed: int) -> RunConfig:
    """Return one run: a method on a backbone, of the common protocol's length."""
    model, small, optimizer = BACKBONES[backbone]
    data = single_data(setting, "cifar10")
    words = optimizer + METHODS[method]
    config = protocol.config(setting, words, data, seed)
    return replace(config, model=small if setting.quick else model)


def row_configs(setting: Setting, backbone: str, method: str) -> list[RunConfig]:
    return [run_config(setting, backbone, method, seed) for seed in setting.seeds_or(0)]


def configs(setting: Setting) -> list[RunConfig]:
    """Return every run: two methods on each backbone."""
    return [
        run
        for backbone in BACKBONES
        for method in METHODS
        for run in row_configs(setting, backbone, method)
    ]


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the table, and each backbone's ECE without a verdict."""
    files = score_files(setting)
    files.add(store.runs(configs(setting)))

    rows: dict[tuple[str, str], MethodRow] = {}
    for backbone in BACKBONES:
        for method in METHODS:
            wanted = row_configs(setting, backbone, method)
            rows[backbone, method] = row_of(files, f"{backbone}, {method}", wanted)

    cells = tuple(common.row_cells(row) for row in rows.values() if row.records)
    table = Table("Other backbones", common.HEADER, cells, NOTE)
    claims = [backbone_claim(name, rows) for name in BACKBONES]
    values = {row.name: [record.test for record in row.records] for row in rows.values()}
    return Findings(claims, [table], values)


def backbone_claim(backbone: str, rows: dict[tuple[str, str], MethodRow]) -> Claim:
    """Report the ECE and accuracy of gamma-net beside those of cross-entropy."""
    says = f"{backbone}: gamma-net has less ECE than cross-entropy"
    ce, ours = (rows[backbone, method] for method in METHODS)
    if not ce.records or not ours.records:
        return claim_without_runs(says)

    found = (
        f"ECE {100 * ours.mean('ece'):.2f} : {100 * ce.mean('ece'):.2f}, accuracy "
        f"{100 * ours.mean('accuracy'):.1f} : {100 * ce.mean('accuracy'):.1f} % "
        f"(n = {len(ours.records)} : {len(ce.records)})"
    )
    return Claim(says, found, "an open question", None, "reported only: one run each is asked for")
