"""The configuration of one run: a frozen record in canonical words, with an id of its content."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from toosure.quantities import measures
from toosure.sentences import did_you_mean
from toosure.words import Word, parse

Precision = Literal["float32", "float64", "bf16", "fp16"]
ACCEPTED_TYPES: dict[type, type] = {int: Integral, float: Real, str: str}
TYPE_NAMES: dict[type, str] = {int: "whole number", float: "number", str: "word"}
WORDS = ("data", "model", "optimizer", "loss", "objective", "schedule", "control")


@dataclass(frozen=True)
class RunConfig:
    """Hold everything that decides a run's numbers; equal settings make equal records and ids.

    Words are brought to their canonical spelling, and a mistake in one raises here. Each word is
    parsed once; `word` returns the parsed one. `batch=None` is the full batch, which the optimizer
    `gd` (also as `sam:base=gd`) implies. A run is measured `every` so many steps, or `at` given
    steps, or as often as `budget`, a share of the time, allows. What is of the machine (device,
    compile, graph, processes, where the data are kept: `toosure.train.Runtime`) is not part of it.

    >>> config = RunConfig(optimizer="sgd:momentum=0.9,lr=1/10", steps=100)
    >>> config.optimizer, config.name
    ('sgd:lr=0.1,momentum=0.9', 'digits-mlp-sgd-lr0.1-momentum0.9-s0-65eeefe4')
    >>> RunConfig.from_json(config.to_json()) == config
    True
    """

    data: str = "digits"
    model: str = "mlp"
    optimizer: str = "sgd:lr=0.1"
    loss: str = "ce"
    objective: str | None = None
    schedule: str = "constant"
    steps: int = 2000
    batch: int | None = 128
    seed: int = 0
    clip: float | None = None  # the largest norm of a gradient
    precision: Precision = "float32"
    every: int = 20
    at: tuple[int, ...] = ()
    budget: float | None = None
    measure: tuple[str, ...] = ("gn_sharpness",)  # beside the metrics and margins
    eps: float = 0.01  # radius of the certificate
    curvature_examples: int | None = None  # of each split, for curvature; all of them if None
    curvature_loss: str | None = None  # whose curvature is measured; the training loss if None
    average: str | None = None  # of the weights: ema, swa, swag, or several joined by +
    best: str | None = None  # keep the weights of the least validation nll or refinement
    patience: int | None = None  # end the run after this many rows without a better one
    min_delta: float | None = None  # by how much a row must be better for patience to wait anew
    control: str | None = None  # what steers the optimizer by a control split: radius

    def __post_init__(self) -> None:
        for name, annotation in get_type_hints(type(self)).items():
            self._set(name, typed(name, getattr(self, name), annotation))

        if self.best == "refinement":  # which the temperature gives
            self._set("measure", (*self.measure, "temperature"))
        self._set("measure", as_measures(self.measure))
        self._set("at", tuple(sorted(set(self.at))))

        for kind in WORDS:
            text = getattr(self, kind)
            if text is not None:
                self._words[kind] = parse(kind, text)
                self._set(kind, str(self._words[kind]))

        if self.curvature_loss is not None:
            self._set("curvature_loss", str(parse("loss", self.curvature_loss)))
        if self.average is not None:
            self._set("average", "+".join(str(word) for word in self.averages))
        if self.full_batch:
            self._set("batch", None)
        self._check()

    def _set(self, name: str, value: object) -> None:
        """Set a field while the frozen record is being made."""
        object.__setattr__(self, name, value)

    @cached_property
    def _words(self) -> dict[str, Word]:
        """The words parsed so far, by kind; not a field, so not part of equality or JSON."""
        return {}

    def __getstate__(self) -> dict[str, object]:
        """Pickle only the fields: a word `package.module:name` is looked up where it is unpickled.

        A worker process may have to extend `sys.path` before it can import that module.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _check(self) -> None:
        """Raise on a number out of its range, and on settings that exclude each other."""
        for name, minimum in (
            ("steps", 1),
            ("every", 1),
            ("batch", 1),
            ("seed", 0),
            ("patience", 1),
            ("curvature_examples", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"{name} must be at least {minimum}; got {value}")

        intervals = [self.every != type(self).every, bool(self.at), self.budget is not None]
        if sum(intervals) > 1:
            raise ValueError("measure every N steps, at given steps or by budget: one of them")
        if self.budget is not None and not 0 < self.budget < 1:
            raise ValueError(f"budget is a share of the time in (0, 1); got {self.budget}")
        if self.at and not 0 <= self.at[0] <= self.at[-1] <= self.steps:
            raise ValueError(f"at must name steps from 0 to {self.steps}; got {self.at}")

        if self.precision not in get_args(Precision):
            raise ValueError(
                f"precision must be float32, float64, bf16 or fp16; got {self.precision!r}"
            )
        self._check_best()
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be a positive norm; got {self.clip}")
        if not 0 < self.eps < math.inf:
            raise ValueError(f"eps is the radius of a ball, above 0; got {self.eps}")

        # A schedule and a controller check their own settings when they are built.
        self.word("schedule").build()
        if self.control is not None:
            self.word("control").build()

    def _check_best(self) -> None:
        """Raise on an unknown `best`, and on patience or min_delta without what they need."""
        if self.best not in (None, "nll", "refinement"):
            raise ValueError(f"best is by nll or refinement; got {self.best!r}")
        if self.patience is not None and self.best is None:
            raise ValueError("patience waits for a better row: say by what, best=refinement or nll")
        if self.min_delta is not None and not 0 <= self.min_delta < math.inf:
            raise ValueError(f"min_delta must not be negative, and finite; got {self.min_delta}")
        if self.min_delta is not None and self.patience is None:
            raise ValueError("min_delta is what patience calls better: say patience, too")
        if self.best is not None and "best" in self.measure:
            raise ValueError("best.npz is by best or by measure: leave best out of measure")

    def word(self, kind: str) -> Word:
        """Return the parsed word of a kind: its method and settings."""
        if kind not in self._words:  # this record was unpickled
            self._words[kind] = parse(kind, getattr(self, kind))
        return self._words[kind]

    @property
    def averages(self) -> list[Word]:
        """The words of `average`, which names several with a plus: ema:decay=0.999+swag."""
        texts = re.split(r"\+(?=[A-Za-z])", self.average) if self.average else []
        words = [parse("average", text) for text in texts]
        names = [word.name for word in words]
        if len(set(names)) < len(names):
            raise ValueError(f"average names {max(names, key=names.count)} twice")
        return words

    @property
    def full_batch(self) -> bool:
        """Whether the optimizer is gradient descent proper, or has it as its base."""
        word = self.word("optimizer")
        base = word.settings.get("base")
        return word.name == "gd" or (isinstance(base, Word) and base.name == "gd")

    @property
    def non_defaults(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        values = json.loads(self.to_json())
        return {f.name: values[f.name] for f in fields(self) if getattr(self, f.name) != f.default}

    @property
    def id(self) -> str:
        """Eight hexadecimal digits of a hash of the settings, whatever order they came in."""
        text = json.dumps(self.non_defaults, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """A readable folder name that ends in the id."""
        words = [self.data, self.model, self.optimizer]
        others = (self.loss, self.objective, self.schedule, self.average, self.control)
        words += [word for word in others if word and word not in ("ce", "constant")]

        slug = "-".join(_slug(word) for word in words)
        return f"{slug[:90].rstrip('-.')}-s{self.seed}-{self.id}"

    def to_json(self) -> str:
        """Write everything, defaults too, as JSON for people and `from_json`."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "RunConfig":
        """Read what `to_json` wrote; a setting that does not exist is an error."""
        settings = json.loads(text)
        if not isinstance(settings, dict):
            raise ValueError(f"a run's config is a JSON object; got {type(settings).__name__}")
        return cls.of(settings)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "RunConfig":
        """Make a config of settings by name; one that does not exist is an error."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise ValueError(f"a run has no setting {name!r}{did_you_mean(name, known)}")
        return cls(**settings)

    @classmethod
    def read(cls, path: str | Path) -> "RunConfig":
        """Read a config file, or that of a run folder."""
        path = Path(path)
        path = path / "config.json" if path.is_dir() else path
        try:
            return cls.from_json(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        except RecursionError as error:
            raise ValueError(f"{path} is not a config: it is nested too deeply") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def typed(name: str, value: object, annotation: object) -> object:
    """Return a setting in the type of its annotation; raise if it has another type.

    >>> typed("batch", "full", int | None), typed("clip", 1, float | None), typed("seed", 3, int)
    (None, 1.0, 3)
    """
    parts = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    optional = type(None) in parts
    if (value is None and optional) or (name == "batch" and value == "full"):
        return None

    kind = str if get_origin(annotation) is Literal else parts[0]
    if get_origin(kind) is tuple:
        (element, _) = get_args(kind)  # tuple[element, ...]
        values = (value,) if name == "measure" and isinstance(value, str) else value
        if isinstance(values, list | tuple | set | frozenset):
            return tuple(typed(name, each, element) for each in values)
        expected = f"a list of {TYPE_NAMES[element]}s"
    else:
        # True is an int to Python, but not a number of steps.
        if not isinstance(value, bool) and isinstance(value, ACCEPTED_TYPES[kind]):
            return kind(value)
        expected = f"a {TYPE_NAMES[kind]}"

    also = " or none" if optional else ""
    raise ValueError(f"{name} must be {expected}{also}; got {type(value).__name__} {value!r}")


def as_measures(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the quantities to measure in the order of their table; an unknown name raises.

    A single name may be given without a list; "none" alone is nothing.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    names = () if names == ("none",) else names
    known = measures()
    for name in names:
        if name == "none":
            raise ValueError("none measures nothing: give it alone, or leave it out")
        if name not in known:
            hint = did_you_mean(name, known, ".")
            raise ValueError(f"cannot measure {name!r}{hint} Known: {', '.join(known)}")

    return tuple(name for name in known if name in names)


def sweep_of(**values: Iterable[Any]) -> list[RunConfig]:
    """Return one config per combination of the values, each once, in order.

    >>> [config.seed for config in sweep_of(optimizer=["sgd:lr=0.1", "gd:lr=0.1"], seed=[0, 1])]
    [0, 1, 0, 1]
    """
    names = list(values)
    combinations = product(*values.values())
    configs = (RunConfig.of(dict(zip(names, each, strict=True))) for each in combinations)
    return list(dict.fromkeys(configs))


def _slug(word: str) -> str:
    """Turn a word into part of a file name: sgd:lr=0.1 becomes sgd-lr0.1."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", word.replace("=", "")).strip("-.")
