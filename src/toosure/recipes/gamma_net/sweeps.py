"""The runs of the gamma-net recipe in words: baselines, ablations, bandwidths, feeds."""

from typing import Any

from toosure.config import RunConfig
from toosure.recipes.recipe import Setting

OPTIMIZER = "sgd:lr=0.1,momentum=0.9,weight_decay=0.0005"
METHODS: dict[str, dict[str, str]] = {
    "CE": {},
    "focal": {"loss": "focal"},
    "FLSD-53": {"loss": "flsd53"},
    "SECE alone": {"loss": "sece"},
    "gamma-net, not learning": {"objective": "gamma_net:lr=0"},
    "gamma-net + SECE": {"objective": "gamma_net"},
}
OURS = "gamma-net + SECE"
BASELINES = ("CE", "focal", "FLSD-53")
WIDTHS = ("0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1")
FEEDS = {"penultimate": "", "layer2": "feed=layer2", "random": "feed=random", "noise": "feed=noise"}


def config(setting: Setting, seed: int, **words: str) -> RunConfig:
    """Return a run: CIFAR-10 with crops and flips, ResNet-20, 10,000 steps, rate cut twice."""
    scale: dict[str, Any] = {"data": "cifar10:augment=true", "steps": 10_000, "every": 1000}
    if setting.quick:
        data = "digits:train=128,val=50,test=200"
        scale = {"data": data, "steps": 6, "every": 6, "batch": 32}
    fixed = {"model": "resnet20", "optimizer": OPTIMIZER, "schedule": "step", "measure": ()}
    return RunConfig.of({**scale, **fixed, **words, "seed": seed})


def seeds(setting: Setting, several: bool = True) -> tuple[int, ...]:
    return setting.among(*((0, 1, 2) if several and not setting.quick else (0,)))


def cell(setting: Setting, name: str) -> list[RunConfig]:
    """Return the runs of a method, one a seed."""
    return [config(setting, seed, **METHODS[name]) for seed in seeds(setting)]


def main(setting: Setting) -> list[RunConfig]:
    """Return every run of the main table."""
    return [each for name in METHODS for each in cell(setting, name)]


def widths(setting: Setting) -> tuple[str, ...]:
    return WIDTHS[::3] if setting.quick else WIDTHS


def of_width(setting: Setting, width: str) -> list[RunConfig]:
    """Return gamma-net's runs at a bandwidth of SECE."""
    word = f"gamma_net:bandwidth={width}"
    return [config(setting, seed, objective=word) for seed in seeds(setting, several=False)]


def bandwidths(setting: Setting) -> list[RunConfig]:
    """Return the sweep over the bandwidth, .001 to 1."""
    return [each for width in widths(setting) for each in of_width(setting, width)]


def fed(setting: Setting, feed: str) -> list[RunConfig]:
    """Return gamma-net's runs with other features; noise knows nothing of the image."""
    word = "gamma_net:" + FEEDS[feed] if FEEDS[feed] else "gamma_net"
    return [config(setting, seed, objective=word) for seed in seeds(setting, several=False)]


def features(setting: Setting) -> list[RunConfig]:
    """Return gamma-net with its features and with what may replace them."""
    return [each for feed in FEEDS for each in fed(setting, feed)]
