"""The runs of the gamma-net recipe as configs: baselines, ablations, bandwidths, features."""

from toosure.config import RunConfig
from toosure.recipes.gamma_net.rows import OURS
from toosure.recipes.recipe import Setting

OPTIMIZER = "sgd:lr=0.1,momentum=0.9,weight_decay=0.0005"
METHODS: dict[str, dict[str, str]] = {
    "CE": {},
    "focal": {"loss": "focal"},
    "FLSD-53": {"loss": "flsd53"},
    "CE + 0.5 SECE": {"loss": "sece"},
    "gamma-net, not learning": {"objective": "gamma_net:lr=0,level_lr=none"},
    OURS: {"objective": "gamma_net"},
}
BASELINES = ("CE", "focal", "FLSD-53")

BANDWIDTHS = ("0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "auto")
# At one rate, where gammas follow the features most. Noise does not depend on the image.
FEATURES = {
    feed: f"gamma_net:feed={feed},lr=0.001,level_lr=none"
    for feed in ("penultimate", "layer2", "random", "noise")
}


# The part `settling`: what makes the final gamma differ between seeds. Written before the runs.
ONE_RATE_OPTIONS = {"lr": "0.001", "level_lr": "none"}
FIRST_BUILT = {
    **ONE_RATE_OPTIONS,
    "bandwidth": "0.01",
    "form": "points",
    "leave_one_out": "false",
    "detach": "false",
    "meta_batch": "128",
    "fresh": "none",
    "virtual_lr": "none",
}
DETACHED = {**FIRST_BUILT, "detach": "true", "virtual_lr": "0.1"}
ARM_A = "A: as first built"
ARM_D = "D: accuracy detached, virtual rate .1"
ARM_E = "E: D, meta batch 512"
ARM_G = "G: one rate"
ARM_H = "gamma-net (H)"
ARMS: dict[str, dict[str, str] | None] = {
    "CE": None,
    ARM_H: {},  # G with a fast level: the defaults
    ARM_A: FIRST_BUILT,
    ARM_D: DETACHED,
    ARM_E: {**DETACHED, "meta_batch": "512"},
    "F: A, bandwidth .1": {**FIRST_BUILT, "bandwidth": "0.1"},
    ARM_G: ONE_RATE_OPTIONS,
}
ARM_SEEDS = (0, 1, 2, 3, 4)


def single_data(setting: Setting, preferred: str) -> str:
    """Return the data set of a part that uses only one: the preferred one, or the first.

    >>> single_data(Setting(data="cifar100"), "cifar10")
    'cifar100'
    >>> single_data(Setting(data="cifar10,cifar100"), "cifar100")
    'cifar100'
    """
    names = setting.data_sets
    return preferred if preferred in names else names[0]


def config(setting: Setting, seed: int, preferred: str = "cifar10", **words: str) -> RunConfig:
    """Return a run: crops and flips, ResNet-20, 10,000 steps in bf16, the rate cut twice.

    A quick run is in float32.
    """
    data = f"{single_data(setting, preferred)}:augment=true"
    size: dict[str, object] = {
        "data": data,
        "steps": 10_000,
        "every": 1000,
        "precision": "bf16",
    }
    if setting.quick:
        data = "digits:train=128,val=50,test=200"
        size = {"data": data, "steps": 6, "every": 6, "batch": 32}

    fixed = {"model": "resnet20", "optimizer": OPTIMIZER, "schedule": "step", "measure": ()}
    return RunConfig.of({**size, **fixed, **words, "seed": seed})


def comparison_seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of the main table: three, unless the command names others."""
    return setting.seeds_or(0) if setting.quick else setting.seeds_or(0, 1, 2)


def arm_configs(setting: Setting, name: str) -> list[RunConfig]:
    """Return the runs of an arm of the settling experiment, one per seed."""
    seeds = setting.seeds_or(0) if setting.quick else setting.seeds_or(*ARM_SEEDS)
    options = ARMS[name]
    words = {} if options is None else {"objective": word_with("gamma_net", options)}
    return [config(setting, seed, **words) for seed in seeds]


def word_with(name: str, options: dict[str, str]) -> str:
    """Spell a word with options: `gamma_net:lr=0`, or its name alone without any.

    >>> word_with("gamma_net", {"lr": "0"}), word_with("gamma_net", {})
    ('gamma_net:lr=0', 'gamma_net')
    """
    listed = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{name}:{listed}" if listed else name


def arms(setting: Setting) -> list[RunConfig]:
    """Return every run of the settling experiment; a quick one has three arms."""
    names = list(ARMS)[:3] if setting.quick else list(ARMS)
    return [each for name in names for each in arm_configs(setting, name)]


def method_configs(setting: Setting, name: str) -> list[RunConfig]:
    """Return the runs of a method, one per seed."""
    return [config(setting, seed, **METHODS[name]) for seed in comparison_seeds(setting)]


def comparison(setting: Setting) -> list[RunConfig]:
    """Return every run of the main table."""
    return [each for name in METHODS for each in method_configs(setting, name)]


def bandwidth_values(setting: Setting) -> tuple[str, ...]:
    return BANDWIDTHS[::3] if setting.quick else BANDWIDTHS


def bandwidth_configs(setting: Setting, bandwidth: str) -> list[RunConfig]:
    """Return gamma-net's runs at one bandwidth of SECE; by default one run."""
    word = f"gamma_net:bandwidth={bandwidth}"
    return [config(setting, seed, "cifar100", objective=word) for seed in setting.seeds_or(0)]


def bandwidths(setting: Setting) -> list[RunConfig]:
    """Return the sweep over the bandwidth, .001 to 1."""
    return [
        each
        for bandwidth in bandwidth_values(setting)
        for each in bandwidth_configs(setting, bandwidth)
    ]


def feature_configs(setting: Setting, features: str) -> list[RunConfig]:
    """Return gamma-net's runs with one kind of input features."""
    word = FEATURES[features]
    return [config(setting, seed, objective=word) for seed in comparison_seeds(setting)]


def features(setting: Setting) -> list[RunConfig]:
    """Return gamma-net with its own features and with replacements."""
    return [each for kind in FEATURES for each in feature_configs(setting, kind)]
