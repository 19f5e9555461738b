"""The rows of the benchmark: which methods, with which settings and seeds."""

from toosure.config import RunConfig
from toosure.recipes.benchmark import protocol
from toosure.recipes.recipe import Setting

# Chosen from `CHOICE` per data set, by least validation NLL at seed 0.
SHARPNESS_AWARE: dict[str, dict[str, str]] = {
    "cifar10": {
        "SGD": "sgd",
        "SAM": "sam:rho=0.05",
        "ASAM": "asam:rho=0.5",
        "VASSO": "vasso:rho=0.1",
        "CSAM": "csam:rho=0.1,gamma=0.5",
    },
    "cifar100": {
        "SGD": "sgd",
        "SAM": "sam:rho=0.2",
        "ASAM": "asam:rho=1",
        "VASSO": "vasso:rho=0.2",
        "CSAM": "csam:rho=0.2,gamma=1",
    },
}
CHOICE = (
    *("sam:rho=0.05", "sam:rho=0.1", "sam:rho=0.2"),
    *("asam:rho=0.5", "asam:rho=1"),
    *("vasso:rho=0.1", "vasso:rho=0.2"),
    *("csam:rho=0.1,gamma=0.5", "csam:rho=0.1,gamma=1"),
    *("csam:rho=0.2,gamma=0.5", "csam:rho=0.2,gamma=1"),
)

# With the settings of their authors, in the order of training.
OTHERS: dict[str, str] = {
    "Focal": "focal",
    "DualFocal": "dual_focal",
    "AdaFocal": "adafocal",
    "Mixup": "mixup",
    "MIT-L": "mit",
    "MMCE": "mmce:normalization=reference",  # as in its public code, which tables use
    "ACLS": "acls",
    "BalCAL": "balcal",
    "LS": "label_smoothing",
    "CRL": "crl",
    "CPC": "cpc",
    "MBLS": "mbls",
    "MDCA": "mdca",
    "BatchEnsemble": "batch_ensemble",
    "Rank1-BNN": "rank1",
    "VI": "vi",
    "MIMO": "mimo",
    "MC-Dropout": "mc_dropout:samples=5,rate=0.1",
    "gamma-net": "gamma_net",
    "bSAM": "bsam:samples=32,data_factor=4",
    "CCAT": "ccat:eps=0.12,step=0.02",  # .03 and .005 of a pixel, whose deviation is about .25
    "MMCE by its formula": "mmce",
}
QUICK_OTHERS = ("Focal", "Mixup")


def others(setting: Setting) -> dict[str, str]:
    """Return the other methods, which are not sharpness-aware; a quick benchmark has two."""
    names = QUICK_OTHERS if setting.quick else tuple(OTHERS)
    return {name: OTHERS[name] for name in names}


def main_seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of the main table and of the rows that `--method` adds."""
    return setting.seeds_or(0, 1) if setting.quick else setting.seeds_or(0, 1, 2)


def other_seeds(setting: Setting, data: str) -> tuple[int, ...]:
    """Return the seeds of the other methods: three on CIFAR-100, one on CIFAR-10."""
    three = data == "cifar100" and not setting.quick
    return setting.seeds_or(0, 1, 2) if three else setting.seeds_or(0)


def sharpness_aware(data: str) -> dict[str, str]:
    """Return SGD, SAM and its variants with the settings chosen on a data set."""
    if data not in SHARPNESS_AWARE:
        known = " and ".join(SHARPNESS_AWARE)
        raise ValueError(f"the common protocol is set for {known}; got --data {data}")
    return SHARPNESS_AWARE[data]


def table(setting: Setting) -> list[RunConfig]:
    """Return the runs of the benchmark, or only those of the methods in `--method`."""
    runs = []
    for data in setting.data_sets:
        main = sharpness_aware(data).values()
        if setting.methods:
            for method in setting.methods:
                if missing := protocol.unknown_word_error(method):
                    raise ValueError(f"--method {method}: {missing}")
                runs += protocol.configs(setting, method, data, main_seeds(setting))
            continue

        for method in main:
            runs += protocol.configs(setting, method, data, main_seeds(setting))
        for method in others(setting).values():
            runs += protocol.configs(setting, method, data, other_seeds(setting, data))
    return runs


def choice(setting: Setting) -> list[RunConfig]:
    """Return the runs that chose the settings of the sharpness-aware methods."""
    methods = CHOICE[:2] if setting.quick else CHOICE
    return [
        run
        for data in setting.data_sets
        for method in methods
        for run in protocol.configs(setting, method, data, (setting.first_seed,))
    ]


def unavailable_methods(setting: Setting) -> dict[str, str]:
    """Return the methods that cannot be built because a word is unknown, with the error."""
    reasons = {
        name: protocol.unknown_word_error(method) for name, method in others(setting).items()
    }
    return {name: why for name, why in reasons.items() if why}
