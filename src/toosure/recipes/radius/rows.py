"""The rows of each part: methods, data, seeds, networks and lengths."""

import re
from dataclasses import replace

from toosure.recipes.benchmark import methods, protocol
from toosure.recipes.benchmark.protocol import COMMON
from toosure.recipes.benchmark.scored_rows import Row, protocol_row
from toosure.recipes.recipe import Setting

SAM = "sam:rho=0.05+radius"
CSAM = "csam:rho=0.05,gamma=1+radius:actuator=both"
ASAM = "asam:rho=0.5+radius"
EMA = "weights=ema"
RETURNED = "return_from=0.9"
NARROWING = ("final=5", "final_band=0")  # against the drift at the end of the cosine schedule
TRAINING_IMAGES = 45_000
# The combination of least validation NLL (part `combinations`), and the one before ASAM was tried.
CHOSEN = f"{ASAM}:{','.join(NARROWING)}"
CHOSEN_ON_SAM = f"{SAM}:{','.join(NARROWING)}"
HELD_RADII = {"cifar10": (0.5, 1, 2), "cifar100": (1, 2, 5)}  # around those at which CHOSEN ended
LONG = replace(COMMON, steps=2 * COMMON.steps)
NETWORK = replace(COMMON, model="resnet56")

# Names of rows: our method and some of its rivals.
OURS = "steered radius"
OURS_ON_SAM = "steered radius on SAM"
SGD = "SGD"
CHOSEN_SAM = "SAM, chosen"


def is_rival(name: str) -> bool:
    """Whether a row of the comparison counts as a rival.

    Our method on SAM is only shown. So are the cells of CSAM's grid, which served to choose its
    setting.
    """
    return name not in (OURS, OURS_ON_SAM) and not name.startswith("csam:")


def with_options(method: str, *options: str) -> str:
    """Return a method with these options in its control word; equal names are replaced.

    >>> with_options("sam:rho=0.05+radius", "gain=1")
    'sam:rho=0.05+radius:gain=1'
    >>> with_options("csam+radius:actuator=both,gain=2+ema", "weights=ema", "gain=1")
    'csam+radius:actuator=both,weights=ema,gain=1+ema'
    """
    match = control_word(method)
    replaced = {name_of(option) for option in options}
    before = (match.group(1) or "").removeprefix(":")
    kept = [each for each in before.split(",") if each and name_of(each) not in replaced]
    word = "radius:" + ",".join([*kept, *options])
    return method[: match.start()] + word + method[match.end() :]


def name_of(option: str) -> str:
    return option.partition("=")[0]


def control_word(method: str) -> re.Match[str]:
    """Return the match of the control word in a method; raise ValueError if it has none."""
    match = re.search(r"\bradius(:[^+]*)?", method)
    if match is None:
        raise ValueError(f"{method} has no control word `radius`: write sam:rho=0.05+radius")
    return match


def our_method(setting: Setting) -> str:
    """Return the words of our method: `--method`, or the chosen combination."""
    if not setting.methods:
        return CHOSEN
    if len(setting.methods) > 1:
        raise ValueError("radius compares one combination: give --method once")
    method = setting.methods[0]
    if missing := protocol.unknown_word_error(method):
        raise ValueError(f"--method {method}: {missing}")
    control_word(method)  # raises if it is not steered
    return method


def ours(setting: Setting) -> dict[str, str]:
    """Return the words of our method, and of ours on SAM, by the name of their row."""
    words = {OURS: our_method(setting)}
    if not setting.quick and our_method(setting) != CHOSEN_ON_SAM:
        words[OURS_ON_SAM] = CHOSEN_ON_SAM
    return words


def data_names(setting: Setting) -> tuple[str, ...]:
    """Return the data sets of the command; a quick recipe uses digits."""
    if setting.quick:
        return ("digits",)
    for data in setting.data_sets:
        methods.sharpness_aware(data)  # raises for unknown data
    return setting.data_sets


def chosen(setting: Setting, data: str) -> dict[str, str]:
    """Return SGD, SAM and its variants with the settings that the benchmark chose."""
    return methods.sharpness_aware("cifar10" if setting.quick else data)


# -- one function per part ------------------------------------------------------------------------


def combinations(setting: Setting, own_seeds: tuple[int, ...] = ()) -> list[Row]:
    """Return radius control on SAM, CSAM and ASAM, each also with the control split returned.

    SAM and CSAM also have an EMA; SAM and ASAM also have a dead band that narrows and a gain that
    rises towards the end. There is one seed, unless `own_seeds` gives others.
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
        protocol_row(setting, name, word, data, own_seeds or (setting.first_seed,))
        for data in data_names(setting)
        for name, word in words.items()
    ]


def comparison(setting: Setting) -> list[Row]:
    """Return our method and all its rivals."""
    rows = []
    for data in data_names(setting):
        rows += [
            protocol_row(setting, name, word, data, seeds(setting))
            for name, word in ours(setting).items()
        ]
        rows += rivals(setting, data)
    return rows


def rivals(setting: Setting, data: str) -> list[Row]:
    """Return the rivals: three seeds each, but one for CalMO and the cells of CSAM's grid."""
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
    three = seeds(setting)
    rows = [protocol_row(setting, name, word, data, three) for name, word in several.items()]
    rows.append(protocol_row(setting, "SGD, twice the epochs", "sgd", data, three, LONG))
    rows += [protocol_row(setting, word, word, data, one) for word in grid]
    if not setting.quick:
        rows.append(protocol_row(setting, "CalMO", "calmo", data, one))
    return rows


def seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of the comparison."""
    return setting.seeds_or(0) if setting.quick else setting.seeds_or(0, 1, 2)


def held(setting: Setting) -> list[Row]:
    """Return our method, and ASAM at constant radii around its final ones."""
    rows = []
    for data in data_names(setting):
        radii = HELD_RADII["cifar10" if setting.quick else data]
        words = {OURS: our_method(setting), **{f"asam:rho={r:g}": f"asam:rho={r:g}" for r in radii}}
        for name, word in words.items():
            rows.append(protocol_row(setting, name, word, data, seeds(setting)))
    return rows


def nearest(setting: Setting, data: str) -> dict[str, str]:
    """Return the words of our method and its nearest rivals, by the name of their row."""
    words = chosen(setting, data)
    return {
        OURS: our_method(setting),
        SGD: "sgd",
        CHOSEN_SAM: words["SAM"],
        "CSAM, chosen": words["CSAM"],
    }


def network(setting: Setting) -> list[Row]:
    """Return our method and its nearest rivals on a second network, one seed."""
    one = (setting.first_seed,)
    return [
        protocol_row(setting, name, word, data, one, NETWORK)
        for data in data_names(setting)
        for name, word in nearest(setting, data).items()
    ]


def shift(setting: Setting) -> list[Row]:
    """Return the runs judged on corrupted images: our method, also on SAM, and its nearest rivals.

    Our method on SAM is shown, not judged: it tells how much of the result is that of ASAM.
    """
    return [
        protocol_row(setting, name, word, data, seeds(setting))
        for data in data_names(setting)
        for name, word in {**ours(setting), **nearest(setting, data)}.items()
    ]


def cost(setting: Setting) -> list[Row]:
    """Return our method on each data set; its looks are timed."""
    return [
        protocol_row(setting, OURS, our_method(setting), data, seeds(setting))
        for data in data_names(setting)
    ]
