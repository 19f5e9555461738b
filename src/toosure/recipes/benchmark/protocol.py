"""The common protocol: one network, length and schedule for every method of the benchmark."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from toosure.config import RunConfig
from toosure.recipes.recipe import Setting
from toosure.words import TABLES, Word, parse

BASE = {"lr": "0.1", "momentum": "0.9", "weight_decay": "0.0005"}
KINDS = ("optimizer", "loss", "objective", "average", "control")
ALWAYS_SHOWN = ("rho", "gamma")  # options of an optimizer that a label shows even by default
DATA_SETS = ("cifar10", "cifar100")

# ECE in points of perfectly calibrated networks as sure as ours, on 10,000 test images: least and
# largest over the methods. Surer networks show less.
ECE_BY_CHANCE = {"cifar10": (0.3, 1.0), "cifar100": (0.8, 1.3)}


@dataclass(frozen=True)
class Size:
    """Network, number of steps and batch of a run."""

    model: str
    steps: int
    batch: int


DESCRIPTION = (
    "45,000 / 5,000 split by seed, crops and flips, 30 epochs of batch 256 (5,273 steps), rate "
    "0.1, momentum 0.9, decay 5e-4, cosine with 200 steps of warm-up, bf16"
)
COMMON = Size("resnet18", 5273, 256)  # 30 epochs of 45,000 images
CURVATURE_EXAMPLES = 2000  # of each split; an eigenvalue on 45,000 takes minutes
QUICK = Size("mlp", 8, 32)
QUICK_RESIDUAL = Size("wrn:depth=10,width=1", 8, 32)  # for dropout in residual branches


def config(
    setting: Setting,
    method: str,
    data: str,
    seed: int,
    size: Size = COMMON,
    measure: tuple[str, ...] = (),
    measure_at: Sequence[float] = (1.0,),
) -> RunConfig:
    """Return the run of a method (see `words_of`) by the common protocol, at one seed.

    The seed also splits the training images into 45,000 and 5,000. `measure_at` holds the shares of
    the steps after which the run is measured: by default its end alone.
    """
    if setting.quick:
        size = QUICK_RESIDUAL if "mc_dropout" in method else QUICK

    fixed: dict[str, object] = {
        "data": f"{data}:augment=true,seed={seed}",
        "model": size.model,
        "optimizer": with_protocol_options("sgd"),
        "schedule": "cosine:warmup=200",
        "steps": size.steps,
        "batch": size.batch,
        "precision": "bf16",
        "at": tuple(round(share * size.steps) for share in measure_at),
        "measure": measure,
    }
    if "hessian_sharpness" in measure:
        fixed |= {"curvature_examples": CURVATURE_EXAMPLES, "curvature_loss": "ce"}

    if setting.quick:
        small = {"data": "digits:train=128,val=50,test=200", "precision": "float32"}
        fixed |= {**small, "schedule": "cosine:warmup=2"}
    return RunConfig.of({**fixed, **words_of(method), "seed": seed})


def configs(
    setting: Setting,
    method: str,
    data: str,
    seeds: Sequence[int],
    size: Size = COMMON,
    measure: tuple[str, ...] = (),
    measure_at: Sequence[float] = (1.0,),
) -> list[RunConfig]:
    """Return the runs of a method, one per seed, or none if a word of it is unknown."""
    if unknown_word_error(method):
        return []
    return [config(setting, method, data, seed, size, measure, measure_at) for seed in seeds]


# -- words ----------------------------------------------------------------------------------------


def words_of(method: str) -> dict[str, str]:
    """Return the words of a run that a method gives, by kind.

    A method is a word of an optimizer, loss, objective, average or control, or several joined by a
    plus. `objective=package.module:name` gives the kind of a word that is in no table.

    >>> words_of("sam:rho=0.1")
    {'optimizer': 'sam:rho=0.1,lr=0.1,momentum=0.9,weight_decay=0.0005'}
    >>> words_of("csam+focal")["loss"], words_of("bsam")
    ('focal', {'optimizer': 'bsam'})
    """
    words: dict[str, str] = {}
    for text in re.split(r"\+(?=[A-Za-z])", method.strip()):
        kind, word = kind_of(text)
        if kind in words:
            raise ValueError(f"{method!r} names two words of the kind {kind}: give one")
        words[kind] = with_protocol_options(word) if kind == "optimizer" else word
    return words


def kind_of(text: str) -> tuple[str, str]:
    """Return the kind of a word, and the word without the kind before an equals sign."""
    kind, equals, word = text.partition("=")
    if equals and kind in KINDS:
        return kind, word

    name = text.partition(":")[0].strip()
    for kind in KINDS:
        if name in TABLES[kind]:
            return kind, text
    raise ValueError(
        f"there is no optimizer, loss, objective, average or control {name!r}: `toosure methods` "
        "lists them; write objective=package.module:name for one of your own"
    )


def with_protocol_options(text: str) -> str:
    """Return an optimizer's word with the protocol's rate, momentum and decay.

    Only optimizers that step by SGD get them. Others keep the options of their authors.
    """
    word = parse("optimizer", text if text != "sgd" else f"sgd:lr={BASE['lr']}")
    if not steps_by_sgd(word):
        return str(word)

    added = [f"{name}={value}" for name, value in BASE.items() if f"{name}=" not in text]
    separator = "," if ":" in text else ":"
    return str(parse("optimizer", text + separator + ",".join(added))) if added else str(word)


def steps_by_sgd(word: Word) -> bool:
    """Whether an optimizer is SGD or passes its options on to SGD."""
    receiver = word.method.passes_to
    if receiver == "base":
        receiver = str(word.value("base"))
    return "sgd" in (word.name, receiver)


@cache
def unknown_word_error(method: str) -> str:
    """Return the error about a word of a method that is unknown, or an empty text.

    >>> unknown_word_error("sam:rho=0.1"), unknown_word_error("no_such_loss")[:34]
    ('', 'there is no optimizer, loss, objec')
    """
    try:
        for kind, word in words_of(method).items():
            parse(kind, word)
    except ValueError as error:
        return str(error)
    return ""


# -- labels ---------------------------------------------------------------------------------------


def label(config: RunConfig) -> str:
    """Return the words that name the method of a run, without what all runs share.

    >>> label(config(Setting(), "csam:rho=0.1+focal", "cifar10", 0))
    'csam:rho=0.1,gamma=1 + focal'
    >>> [label(config(Setting(), method, "cifar10", 0)) for method in ("mixup", "sgd")]
    ['mixup', 'sgd']
    >>> label(config(Setting(), "sam:rho=0.05+radius", "cifar10", 0))
    'sam:rho=0.05 + radius'
    """
    others = (config.loss, config.objective, config.average, config.control)
    words = [word for word in others if word and word != "ce"]

    optimizer = optimizer_label(config.word("optimizer"))
    if optimizer != "sgd" or not words:
        words.insert(0, optimizer)
    return " + ".join(words)


def optimizer_label(word: Word) -> str:
    """Spell an optimizer without the options of the protocol, but always with rho and gamma.

    >>> optimizer_label(parse("optimizer", "bsam:lr=0.1,rho=0.02"))
    'bsam:lr=0.1,rho=0.02'
    """
    shared = BASE if steps_by_sgd(word) else {}
    shown = []
    for name, option in word.method.settings.items():
        if name in word.settings or name in ALWAYS_SHOWN:
            shown.append((name, option.write(word.value(name))))

    own = set(word.method.settings)
    passed_on = [(name, str(word.settings[name])) for name in word.settings if name not in own]
    items = [f"{name}={value}" for name, value in shown + passed_on if shared.get(name) != value]
    return f"{word.name}:{','.join(items)}" if items else word.name


def follows_protocol(run: RunConfig, setting: Setting) -> bool:
    """Whether a run differs from the protocol only in the words of its method."""
    data = run.data.partition(":")[0]
    if not setting.quick and data not in DATA_SETS:
        return False

    expected = config(setting, "sgd", data, run.seed)
    fields = ("data", "model", "schedule", "steps", "batch", "precision", "at", "clip", "patience")
    return all(getattr(run, name) == getattr(expected, name) for name in fields)
