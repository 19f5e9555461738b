"""The rows of each table of the paper: method, network, length, data and seeds."""

from toosure.recipes.benchmark import methods
from toosure.recipes.benchmark.protocol import COMMON, Size
from toosure.recipes.benchmark.scored_rows import Row, protocol_row
from toosure.recipes.csam import paper
from toosure.recipes.csam.paper_networks import NETWORKS
from toosure.recipes.recipe import Setting

TRAINING_IMAGES = {"cifar10": 45_000, "cifar100": 45_000, "tiny_imagenet": 95_000}
# The paper does not say how long it trains on CIFAR; its Figure 2 shows epochs up to 200.
FULL_EPOCHS = 200
FULL_BATCH = 128

# Our network and the paper's, which does not say the width of its PyramidNet.
MODELS: dict[str, tuple[str, str]] = {
    "ResNet-18": ("resnet18", "resnet18"),
    "ResNet-20": ("resnet20", "resnet20"),
    "ResNet-56": ("resnet56", "resnet56"),
    "WRN-28-10": ("wrn:depth=16,width=4", "wrn28_10"),
    "PyramidNet-110": ("pyramidnet110:alpha=48", "pyramidnet110"),
}
# How claims and figures name ours where it is smaller than the paper's.
STAND_INS = {
    "WRN-28-10": "WRN-16-4 for WRN-28-10",
    "PyramidNet-110": "PyramidNet-110 with alpha 48",
}

# Section 5.1: rho .05 on CIFAR-10, .2 on CIFAR-100. gamma by its rule: small rho, large gamma.
PAPER_SETTINGS: dict[str, dict[str, str]] = {
    "cifar10": {
        "SGD": "sgd",
        "SAM": "sam:rho=0.05",
        "ASAM": "asam:rho=0.5",
        "VASSO": "vasso:rho=0.05",
        "CSAM": "csam:rho=0.05,gamma=1",
    },
    "cifar100": {
        "SGD": "sgd",
        "SAM": "sam:rho=0.2",
        "ASAM": "asam:rho=1",
        "VASSO": "vasso:rho=0.2",
        "CSAM": "csam:rho=0.2,gamma=0.5",
    },
}
# The paper gives no rho for Tiny-ImageNet; ours is the rho of CIFAR-100.
PAPER_SETTINGS["tiny_imagenet"] = PAPER_SETTINGS["cifar100"]
WORDS = {**methods.OTHERS, "FL": methods.OTHERS["Focal"]}
BASELINES = tuple(paper.TABLE_3)
LOSSES = tuple(paper.TABLE_S13)
RADII = ("0.05", "0.1")
GAMMAS = ("0", "0.5", "1", "1.5", "2")


def length_text(row: Row) -> str:
    """Return the network of a row and its epochs as text."""
    epochs = row.size.steps * row.size.batch / TRAINING_IMAGES[row.data]
    return f"{row.size.model}, {epochs:.0f}"


def name_of(setting: Setting, network: str) -> str:
    """Return the name of the network that is trained for one of the paper's."""
    return network if setting.full else STAND_INS.get(network, network)


def size_of(setting: Setting, network: str, data: str = "cifar10") -> Size:
    """Return the network with 30 epochs as in the common protocol, or the paper's with 200."""
    ours, papers = MODELS[network]
    images = TRAINING_IMAGES[data]
    if setting.full:
        return Size(papers, FULL_EPOCHS * images // FULL_BATCH, FULL_BATCH)
    return Size(ours, COMMON.steps * images // TRAINING_IMAGES["cifar10"], COMMON.batch)


def main_methods(setting: Setting, data: str) -> dict[str, str]:
    """Return SGD, SAM and its variants with the settings of the benchmark, or of the paper.

    Section 5.3 uses rho .2 on both data sets to compare with baselines: that is `--full`.
    """
    if not setting.full:
        return methods.sharpness_aware(data)
    return {**PAPER_SETTINGS[data], "SAM": "sam:rho=0.2", "CSAM": "csam:rho=0.2,gamma=0.5"}


def single_seeds(setting: Setting) -> tuple[int, ...]:
    """Return one seed, or three at the size of the paper."""
    return setting.seeds_or(0, 1, 2) if setting.full else setting.seeds_or(0)


# -- one function per table -----------------------------------------------------------------------


def sam_variants(setting: Setting) -> list[Row]:
    """Return Tables S11 and S12: by the common protocol, then ResNet-56 with the paper's rho."""
    rows = []
    for data in setting.data_sets:
        figures = paper.TABLE_S11 if data == "cifar10" else paper.TABLE_S12
        if not setting.full:
            seeds = methods.main_seeds(setting)
            for name, method in methods.sharpness_aware(data).items():
                paper_figures = figures[name]
                rows.append(protocol_row(setting, name, method, data, seeds, figures=paper_figures))
        if setting.full or data == "cifar100":
            rows += resnet_56(setting, data, tuple(PAPER_SETTINGS[data]), figures)
    return rows


def resnet_56(
    setting: Setting, data: str, names: tuple[str, ...], figures: paper.PaperTable
) -> list[Row]:
    """Return rows of ResNet-56 with the paper's radius.

    Its gamma, and the radii of ASAM and VASSO, are ours. On CIFAR-100 they also measure sharpness:
    Table S16 shares these runs.
    """
    size = size_of(setting, "ResNet-56")
    seeds = single_seeds(setting)
    known = {**WORDS, **PAPER_SETTINGS[data]}
    measure = ("hessian_sharpness",) if data == "cifar100" else ()
    return [
        protocol_row(setting, name, known[name], data, seeds, size, figures[name], measure=measure)
        for name in names
    ]


def baselines(setting: Setting) -> list[Row]:
    """Return the sixteen rows of Tables 3 and S5."""
    rows = []
    for data in setting.data_sets:
        figures = paper.TABLE_3 if data == "cifar10" else paper.TABLE_S5
        rows += protocol_rows(setting, data, BASELINES, figures, "WRN-28-10")
    return rows


def losses(setting: Setting) -> list[Row]:
    """Return the nine columns of Table S13 as rows; the paper shows CIFAR-100 only."""
    rows = []
    for data in setting.data_sets:
        figures = paper.TABLE_S13 if data == "cifar100" else {}
        rows += protocol_rows(setting, data, LOSSES, figures, "ResNet-56")
    return rows


def protocol_rows(
    setting: Setting, data: str, names: tuple[str, ...], figures: paper.PaperTable, network: str
) -> list[Row]:
    """Return rows by the common protocol, shared with the benchmark, or of the paper's network.

    SGD, SAM and CSAM have the seeds of the main table.
    """
    main = main_methods(setting, data)
    main = {**main, "CE": main["SGD"]}
    size = size_of(setting, network) if setting.full else COMMON

    rows = []
    for name in names:
        method = main.get(name) or WORDS[name]
        few = name not in main and not setting.full
        seeds = methods.other_seeds(setting, data) if few else methods.main_seeds(setting)
        rows.append(protocol_row(setting, name, method, data, seeds, size, figures.get(name)))
    return rows


def grid(setting: Setting) -> list[Row]:
    """Return Table S4: rho by gamma, ResNet-56. gamma 0 is SAM."""
    rows = []
    for data in setting.data_sets:
        label = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}[data]
        for rho in RADII:
            for gamma in GAMMAS:
                method = f"csam:rho={rho},gamma={gamma}" if gamma != "0" else f"sam:rho={rho}"
                figures = paper.TABLE_S4.get(f"{label}/{rho}/{gamma}")
                size = size_of(setting, "ResNet-56")
                name = f"rho {rho}, gamma {gamma}"
                seeds = single_seeds(setting)
                rows.append(protocol_row(setting, name, method, data, seeds, size, figures))
    return rows


def networks(setting: Setting) -> list[Row]:
    """Return Tables S6 to S10: three networks on CIFAR, one on Tiny-ImageNet, nine methods."""
    seeds = single_seeds(setting)
    rows = []
    for (data, network), figures in NETWORKS.items():
        if data not in setting.data_sets:
            continue
        known = {**WORDS, **PAPER_SETTINGS[data], "CE": "sgd"}
        size = size_of(setting, network, data)
        for name in figures:
            label = f"{network}: {name}"
            method = known[name]
            rows.append(protocol_row(setting, label, method, data, seeds, size, figures[name]))
    return rows


def combined(setting: Setting) -> list[Row]:
    """Return Table S15: focal loss and ACLS, alone and with SAM and CSAM, on CIFAR-100."""
    rows = []
    for network, figures in (
        ("ResNet-56", paper.TABLE_S15),
        ("WRN-28-10", paper.TABLE_S15_WRN),
    ):
        for name in figures:
            loss, _, optimizer = name.partition("+")
            word = WORDS[loss]
            if optimizer:
                word = f"{PAPER_SETTINGS['cifar100'][optimizer]}+{word}"

            label = f"{network}: {name}"
            size = size_of(setting, network)
            seeds = single_seeds(setting)
            rows.append(protocol_row(setting, label, word, "cifar100", seeds, size, figures[name]))
    return rows if "cifar100" in setting.data_sets else []


def sharpness(setting: Setting) -> list[Row]:
    """Return Table S16: ResNet-56 on CIFAR-100."""
    if "cifar100" not in setting.data_sets:
        return []
    return resnet_56(setting, "cifar100", tuple(paper.TABLE_S16), paper.TABLE_S16)
