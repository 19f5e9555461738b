"""The runs of each part: which method, on which data, with which seeds, network and length."""

import re
from dataclasses import asdict, dataclass, replace

from toosure.config import RunConfig
from toosure.recipes.benchmark import methods, protocol
from toosure.recipes.benchmark.protocol import COMMON, Size
from toosure.recipes.recipe import Setting

SAM = "sam:rho=0.05+radius"
CSAM = "csam:rho=0.05,gamma=1+radius:actuator=both"
ASAM = "asam:rho=0.5+radius"
EMA = "weights=ema"
RETURNED = "return_from=0.9"
NARROWING = ("final=5", "final_band=0")  # against the drift at the end of the cosine schedule
TRAINING_IMAGES = 45_000
LONG = replace(COMMON, steps=2 * COMMON.steps)
NETWORK = replace(COMMON, model="resnet56")
NOISE = 0.2

# What a row is compared by: ours, or one of its rivals.
OURS = "steered radius"
SGD = "SGD"
CHOSEN_SAM = "SAM, chosen"


@dataclass(frozen=True)
class RadiusRow:
    """One line of a table: its name and the words of its runs."""

    name: str
    method: str
    data: str
    seeds: tuple[int, ...]
    size: Size = COMMON
    noise: float = 0.0  # share of wrong labels in the training data
    rival: bool = True  # False: a cell of a grid, from which the rival was chosen by validation

    def configs(self, setting: Setting) -> list[RunConfig]:
        """Return the runs by the common protocol, one per seed."""
        return [self.config(setting, seed) for seed in self.seeds]

    def config(self, setting: Setting, seed: int) -> RunConfig:
        """Return the run of one seed."""
        run = protocol.config(setting, self.method, self.data, seed, self.size)
        if not self.noise:
            return run
        return RunConfig.of({**asdict(run), "data": f"{run.data},noise={self.noise:g}"})


def with_options(method: str, *options: str) -> str:
    """Return a method whose control word has some options more.

    >>> with_options("sam:rho=0.05+radius", "gain=1")
    'sam:rho=0.05+radius:gain=1'
    >>> with_options("csam+radius:actuator=both+ema", "weights=ema", "gain=1")
    'csam+radius:actuator=both,weights=ema,gain=1+ema'
    """
    found = control_word(method)
    joint = "," if found.group(1) else ":"
    word = found.group(0) + joint + ",".join(options)
    return method[: found.start()] + word + method[found.end() :]


def control_word(method: str) -> re.Match[str]:
    """Return where a method has its control word; raise where it is not steered."""
    found = re.search(r"\bradius(:[^+]*)?", method)
    if found is None:
        raise ValueError(f"{method} has no control word `radius`: write sam:rho=0.05+radius")
    return found


def ours(setting: Setting) -> str:
    """Return the words of our method: those that the command names, or radius control on SAM."""
    if not setting.methods:
        return SAM
    if len(setting.methods) > 1:
        raise ValueError("radius compares one combination: give --method once")
    method = setting.methods[0]
    if missing := protocol.missing_word(method):
        raise ValueError(f"--method {method}: {missing}")
    control_word(method)  # raises where it is not steered
    return method


def data_names(setting: Setting) -> tuple[str, ...]:
    """Return the data sets of the command; a quick recipe has one, made of digits."""
    if setting.quick:
        return ("digits",)
    for data in setting.data_sets:
        methods.sharpness_aware(data)  # raises where the protocol does not know the data
    return setting.data_sets


def chosen(setting: Setting, data: str) -> dict[str, str]:
    """Return SGD, SAM and CSAM as the benchmark chose them, by least validation NLL at seed 0."""
    return methods.sharpness_aware("cifar10" if setting.quick else data)


# -- one function per part ------------------------------------------------------------------------


def combinations(setting: Setting) -> list[RadiusRow]:
    """Return radius control on SAM, CSAM and ASAM, each also with the control split returned.

    SAM and CSAM also with an EMA; SAM and ASAM also with a dead band that narrows and a gain that
    rises further towards the end. One seed, unless the command names several for the finalists.
    """
    base = {
        "SAM": SAM,
        "SAM, narrowing band": with_options(SAM, *NARROWING),
        "CSAM": CSAM,
        "SAM, EMA": f"{with_options(SAM, EMA)}+ema",
        "CSAM, EMA": f"{with_options(CSAM, EMA)}+ema",
        "ASAM": ASAM,
        "ASAM, narrowing band": with_options(ASAM, *NARROWING),
    }
    returned = {f"{name}, returned": with_options(word, RETURNED) for name, word in base.items()}
    words = {**base, **returned}

    return [
        RadiusRow(name, word, data, setting.seeds_or(0))
        for data in data_names(setting)
        for name, word in words.items()
    ]


def comparison(setting: Setting) -> list[RadiusRow]:
    """Return our method and all its rivals."""
    rows = []
    for data in data_names(setting):
        rows.append(RadiusRow(OURS, ours(setting), data, seeds(setting)))
        rows += rivals(setting, data)
    return rows


def rivals(setting: Setting, data: str) -> list[RadiusRow]:
    """Return the rivals: three seeds each, CalMO and the cells of CSAM's grid with one."""
    words = chosen(setting, data)
    radii = [word for word in methods.CHOICE if word.startswith("sam:")]
    several = {
        SGD: "sgd",
        CHOSEN_SAM: words["SAM"],
        "CSAM, chosen": words["CSAM"],
        "ASAM, chosen": words["ASAM"],
        **{word: word for word in radii if word != words["SAM"]},
        "SAM + EMA": f"{words['SAM']}+ema",
        "mixup": "mixup",
        "AdaFocal": "adafocal",
        "gamma-net + SECE": "gamma_net",
    }
    grid = [word for word in methods.CHOICE if word.startswith("csam:") and word != words["CSAM"]]
    if setting.quick:
        several = {name: several[name] for name in (SGD, CHOSEN_SAM, "mixup")}
        grid = grid[:1]

    one = (setting.first_seed,)
    rows = [RadiusRow(name, word, data, seeds(setting)) for name, word in several.items()]
    rows.append(RadiusRow("SGD, twice the epochs", "sgd", data, seeds(setting), LONG))
    rows += [RadiusRow(word, word, data, one, rival=False) for word in grid]
    return rows if setting.quick else [*rows, RadiusRow("CalMO", "calmo", data, one)]


def seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of the comparison."""
    return setting.seeds_or(0) if setting.quick else setting.seeds_or(0, 1, 2)


def network(setting: Setting) -> list[RadiusRow]:
    """Return our method and its nearest rivals on a second network, with one seed."""
    rows = []
    for data in data_names(setting):
        words = chosen(setting, data)
        named = {OURS: ours(setting), SGD: "sgd", CHOSEN_SAM: words["SAM"]}
        named["CSAM, chosen"] = words["CSAM"]
        rows += [
            RadiusRow(n, word, data, (setting.first_seed,), NETWORK) for n, word in named.items()
        ]
    return rows


def robust(setting: Setting) -> list[RadiusRow]:
    """Return what should not matter: start, size of the split, batch, wrong labels; one seed."""
    steered = ours(setting)
    small, large = (16, 60) if setting.quick else (500, 5000)
    seed = (setting.first_seed,)

    rows = []
    for data in data_names(setting):
        rows += [
            RadiusRow(OURS, steered, data, seed),
            RadiusRow("start ten times smaller", with_start(steered, 0.1), data, seed),
            RadiusRow("start ten times larger", with_start(steered, 10), data, seed),
            RadiusRow(
                f"control split of {small:,}", with_options(steered, f"size={small}"), data, seed
            ),
            RadiusRow(
                f"control split of {large:,}", with_options(steered, f"size={large}"), data, seed
            ),
        ]

        sam = chosen(setting, data)["SAM"]
        for batch in (128, 1024):
            size = Size(COMMON.model, COMMON.steps * COMMON.batch // batch, batch)
            rows.append(RadiusRow(f"batch {batch}", steered, data, seed, size))
            rows.append(RadiusRow(f"batch {batch}, SAM as chosen", sam, data, seed, size))
        rows.append(RadiusRow("20 % wrong labels", steered, data, seed, noise=NOISE))
        rows.append(RadiusRow("20 % wrong labels, SAM as chosen", sam, data, seed, noise=NOISE))
    return rows


def with_start(method: str, factor: float) -> str:
    """Return a method that starts from another radius.

    >>> with_start("csam:rho=0.05,gamma=1+radius", 10)
    'csam:rho=0.5,gamma=1+radius'
    """
    found = re.search(r"\brho=([0-9.]+(?:[eE][+-]?[0-9]+)?)", method)
    if found is None:
        raise ValueError(f"{method} does not say its rho: write sam:rho=0.05+radius")
    value = float(found.group(1)) * factor
    return method[: found.start()] + f"rho={value:g}" + method[found.end() :]


def ablations(setting: Setting) -> list[RadiusRow]:
    """Return radius control on SAM with one thing changed at a time; one seed."""
    words = {
        "as it is": SAM,
        "sensor: gap": with_options(SAM, "sensor=gap"),
        "dead band 0": with_options(SAM, "dead_band=0"),
        "dead band 4": with_options(SAM, "dead_band=4"),
        "dead band narrowing to 0": with_options(SAM, "final_band=0"),
        "narrowing, gain rising to 5 times": with_options(SAM, *NARROWING),
        "gain 0.1": with_options(SAM, "gain=0.1"),
        "gain 1": with_options(SAM, "gain=1"),
        "gain not rising": with_options(SAM, "final=1"),
        "no guard": with_options(SAM, "guard=inf"),
        "actuator: gamma of CSAM": "csam:rho=0.05,gamma=1+radius:actuator=gamma",
        "actuator: rho and gamma": CSAM,
        "actuator: focal gamma, SGD": "focal:gamma=1+radius:actuator=focal",
        "EMA, looks at raw weights": f"{SAM}+ema",
        "EMA, looks at it": f"{with_options(SAM, EMA)}+ema",
    }

    return [
        RadiusRow(name, word, data, (setting.first_seed,))
        for data in data_names(setting)
        for name, word in words.items()
    ]


def shift(setting: Setting) -> list[RadiusRow]:
    """Return what is judged on corrupted images: our method, and what a temperature mends."""
    rows = []
    for data in data_names(setting):
        words = chosen(setting, data)
        named = {OURS: ours(setting), SGD: "sgd", CHOSEN_SAM: words["SAM"]}
        named["CSAM, chosen"] = words["CSAM"]
        rows += [RadiusRow(name, word, data, seeds(setting)) for name, word in named.items()]
    return rows


def cost(setting: Setting) -> list[RadiusRow]:
    """Return the runs whose looks are timed: those of the comparison."""
    return [RadiusRow(OURS, ours(setting), data, seeds(setting)) for data in data_names(setting)]
