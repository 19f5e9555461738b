"""The runs of Tables 2 and S14 and of Figure S4: ImageNet-1K, three networks.

The paper gives lengths, base optimizers, rho and the cosine schedule. It does not give rate, decay,
batch, warm-up, augmentation and gamma: ours are in `NETWORKS`, and images are shifted and mirrored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from toosure.config import RunConfig
from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.scored_rows import Row, configs_of
from toosure.recipes.csam import rows
from toosure.recipes.csam.paper_imagenet import TABLE_2, TABLE_S14
from toosure.recipes.recipe import Setting

TRAINING_IMAGES = 1_281_167
VAL_SHARE = 0.2  # of the published validation images: early stopping and temperature
ROWS_PER_RUN = 30  # at which early stopping looks: every 10 of 300 epochs
PATHS_SHOWN_AT = (50 / 300, 200 / 300, 1.0)  # of Figure S4
SGD = "lr=0.1,momentum=0.9,weight_decay=0.0001"
ADAMW = "lr=0.001,weight_decay=0.3"
LOSSES = tuple(name for name in TABLE_S14 if name in rows.WORDS)  # of Table S14


@dataclass(frozen=True)
class Network:
    """A network with its base optimizer, length and batch."""

    model: str
    quick_model: str
    base: str
    epochs: int
    batch: int
    warmup: int  # steps
    words: tuple[tuple[str, str], ...]  # of the base optimizer, SAM and CSAM

    @property
    def steps(self) -> int:
        return self.epochs * TRAINING_IMAGES // self.batch

    @property
    def optimizers(self) -> dict[str, str]:
        return dict(self.words)


def sgd_network(model: str) -> Network:
    """Return a network of Table 2 with SGD for 100 epochs, rho .05."""
    words = (
        ("SGD", f"sgd:{SGD}"),
        ("SAM", f"sam:rho=0.05,{SGD}"),
        ("CSAM", f"csam:rho=0.05,gamma=1,{SGD}"),
    )
    return Network(model, "resnet20", "SGD", 100, 256, 5004, words)


def adamw_network(model: str) -> Network:
    """Return a network of Table 2 with AdamW for 300 epochs, rho .2."""
    words = (
        ("AdamW", f"adamw:{ADAMW}"),
        ("SAM", f"sam:base=adamw,rho=0.2,{ADAMW}"),
        ("CSAM", f"csam:base=adamw,rho=0.2,gamma=0.5,{ADAMW}"),
    )
    quick = "vit:width=12,depth=1,heads=2"
    return Network(model, quick, "AdamW", 300, 1024, 10_000, words)


NETWORKS = {
    "ResNet-50": sgd_network("resnet50"),
    "ViT-S/32": adamw_network("vit_s32"),
    "ViT-S/16": adamw_network("vit_s16"),
}


def imagenet_row(
    setting: Setting, network: str, optimizer: str, figures: Mapping[str, str], loss: str = ""
) -> Row:
    """Return a row of Table 2 or S14, which shows one run.

    SAM on ViT-S/32 also measures the theory of SAM, for Figure S4.
    """
    name = f"{network}/{loss or optimizer}"
    theory = name == "ViT-S/32/SAM"
    config = run_config(setting, NETWORKS[network], optimizer, loss, theory)
    return Row(name, (config,), 1, data="imagenet", figures=figures)


def run_config(
    setting: Setting, network: Network, optimizer: str, loss: str, theory: bool
) -> RunConfig:
    """Return the run of a network with an optimizer and, if it is not empty, a loss."""
    steps = 6 if setting.quick else network.steps
    fields: dict[str, object] = {
        "data": f"imagenet:val=0,val_share={VAL_SHARE},augment=true",
        "model": network.model,
        "optimizer": network.optimizers[optimizer],
        "schedule": f"cosine:warmup={network.warmup}",
        "steps": steps,
        "batch": network.batch,
        "precision": "bf16",
        "at": measured_steps(steps),
        "best": "nll",
        "measure": ("sam_theory",) if theory else (),
        "seed": setting.first_seed,
    }

    if setting.quick:
        small = f"imagenet:size=16,val=0,val_share={VAL_SHARE},augment=true"
        fields |= {"data": small, "model": network.quick_model, "batch": 8}
        fields |= {"schedule": "cosine:warmup=2", "precision": "float32"}

    if loss:
        kind, word = protocol.kind_of(rows.WORDS[loss])
        fields[kind] = word
    return RunConfig.of(fields)


def measured_steps(steps: int) -> tuple[int, ...]:
    """Return the steps at which a run is measured, including its end."""
    shares = [number / ROWS_PER_RUN for number in range(1, ROWS_PER_RUN + 1)]
    return tuple(sorted({max(1, round(share * steps)) for share in shares}))


def table_2(setting: Setting) -> list[Row]:
    """Return the nine rows of Table 2."""
    return [
        imagenet_row(setting, name, optimizer, TABLE_2[f"{name}/{optimizer}"])
        for name, network in NETWORKS.items()
        for optimizer in network.optimizers
    ]


def loss_rows(setting: Setting) -> list[Row]:
    """Return the rows that only Table S14 has: four losses on ViT-S/32."""
    return [
        imagenet_row(setting, "ViT-S/32", "AdamW", TABLE_S14[name], loss=name) for name in LOSSES
    ]


def table_s14(setting: Setting) -> list[Row]:
    """Return the rows of Table S14: three runs of Table 2 and four losses."""
    optimizers = NETWORKS["ViT-S/32"].optimizers
    shared = [imagenet_row(setting, "ViT-S/32", name, TABLE_S14[name]) for name in optimizers]
    return [*shared, *loss_rows(setting)]


def all_rows(setting: Setting) -> list[Row]:
    """Return each run of the two tables once."""
    return [*table_2(setting), *loss_rows(setting)]


def configs(setting: Setting) -> list[RunConfig]:
    """Return the runs of both tables."""
    return configs_of(all_rows(setting))
