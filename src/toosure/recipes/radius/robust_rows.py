"""The runs of the robustness tests and of the ablations."""

import re
from dataclasses import asdict, replace

from toosure.config import RunConfig
from toosure.recipes.benchmark.protocol import COMMON, Size
from toosure.recipes.benchmark.scored_rows import Row, protocol_row
from toosure.recipes.radius.rows import (
    ASAM,
    CHOSEN_ON_SAM,
    CSAM,
    EMA,
    OURS,
    SAM,
    chosen,
    data_names,
    our_method,
    with_options,
)
from toosure.recipes.recipe import Setting

NOISE = 0.2  # share of wrong labels


def robust(setting: Setting) -> list[Row]:
    """Return other starts, control splits, batches and wrong labels; one seed."""
    steered = our_method(setting)
    small, large = (16, 60) if setting.quick else (500, 5000)
    seed = (setting.first_seed,)

    rows = []
    for data in data_names(setting):
        words = {
            OURS: steered,
            "start ten times smaller": with_start(steered, 0.1),
            "start ten times larger": with_start(steered, 10),
            f"control split of {small:,}": with_options(steered, f"size={small}"),
            f"control split of {large:,}": with_options(steered, f"size={large}"),
        }
        rows += [protocol_row(setting, name, word, data, seed) for name, word in words.items()]

        pair = {"": steered, ", SAM as chosen": chosen(setting, data)["SAM"]}
        for batch in (128, 1024):
            size = Size(COMMON.model, COMMON.steps * COMMON.batch // batch, batch)
            rows += [
                protocol_row(setting, f"batch {batch}{name}", word, data, seed, size)
                for name, word in pair.items()
            ]
        rows += [
            with_noise(protocol_row(setting, f"20 % wrong labels{name}", word, data, seed))
            for name, word in pair.items()
        ]
    return rows


def with_noise(row: Row) -> Row:
    """Return a row with wrong labels in the training data of its runs."""
    noisy = [
        RunConfig.of({**asdict(config), "data": f"{config.data},noise={NOISE:g}"})
        for config in row.configs
    ]
    return replace(row, configs=tuple(noisy))


def with_start(method: str, factor: float) -> str:
    """Return a method with another starting radius.

    >>> with_start("csam:rho=0.05,gamma=1+radius", 10)
    'csam:rho=0.5,gamma=1+radius'
    """
    match = re.search(r"\brho=([0-9.]+(?:[eE][+-]?[0-9]+)?)", method)
    if match is None:
        raise ValueError(f"{method} does not say its rho: write sam:rho=0.05+radius")
    value = float(match.group(1)) * factor
    return method[: match.start()] + f"rho={value:g}" + method[match.end() :]


def ablations(setting: Setting) -> list[Row]:
    """Return our method with one change at a time, and other actuators; one seed."""
    steered = our_method(setting)
    words = {
        OURS: steered,
        "sensor: gap": with_options(steered, "sensor=gap"),
        "dead band 0": with_options(steered, "dead_band=0"),
        "dead band 2 to the end": with_options(steered, "final_band=2"),
        "dead band 4 to the end": with_options(steered, "dead_band=4", "final_band=4"),
        "gain 0.1": with_options(steered, "gain=0.1"),
        "gain 1": with_options(steered, "gain=1"),
        "gain not rising": with_options(steered, "final=1"),
        "band and gain by default": ASAM,
        "no guard": with_options(steered, "guard=inf"),
        "actuator: rho of SAM": CHOSEN_ON_SAM,
        "actuator: gamma of CSAM": "csam:rho=0.05,gamma=1+radius:actuator=gamma",
        "actuator: rho and gamma of CSAM": CSAM,
        "actuator: focal gamma, SGD": "focal:gamma=1+radius:actuator=focal",
        "EMA, looks at raw weights": f"{steered}+ema",
        "EMA, looks at it": f"{with_options(steered, EMA)}+ema",
        # With and without an EMA on SAM, and on CSAM (above without): runs of the combinations.
        "SAM, band and gain by default": SAM,
        "SAM, band and gain by default, EMA, looks at it": f"{with_options(SAM, EMA)}+ema",
        "rho and gamma of CSAM, EMA, looks at it": f"{with_options(CSAM, EMA)}+ema",
    }

    return [
        protocol_row(setting, name, word, data, (setting.first_seed,))
        for data in data_names(setting)
        for name, word in words.items()
    ]
