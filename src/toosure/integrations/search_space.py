"""What a study may choose: words with ranges and choices, and the numbers of a run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from toosure.config import WORDS, RunConfig
from toosure.sentences import did_you_mean
from toosure.words import Choices, SearchWord, parse_search
from toosure.words.search import Choose, Domain, chooser, read_domain
from toosure.words.values import parts_of, read

NUMBERS = ("steps", "batch", "seed", "clip", "eps", "every")  # settings of a run to search over
Alternative = SearchWord | Domain | str | None


@dataclass(frozen=True)
class SearchSpace:
    """Hold the alternatives of each setting of a run; other settings keep their defaults.

    Several words for one setting are alternatives, each with its own ranges.

    >>> space = SearchSpace.of(optimizer=["sgd:lr=0.01..1~log", "sam:rho=0.02..0.5~log"], steps=10)
    >>> space.names
    ['optimizer', 'sgd.lr', 'sam.rho']
    >>> space.config(lambda name, domain: domain.examples[0]).optimizer
    'sgd:lr=0.01'
    """

    settings: Mapping[str, Any]  # as they were given
    alternatives: Mapping[str, tuple[Alternative, ...]]
    fixed: Mapping[str, Any]

    @classmethod
    def of(cls, **settings: Any) -> "SearchSpace":
        """Make a space of settings of a run; a text or a list of texts may hold what to search."""
        known = [field.name for field in fields(RunConfig)]
        alternatives: dict[str, tuple[Alternative, ...]] = {}
        fixed: dict[str, Any] = {}
        for name, value in settings.items():
            if name not in known:
                raise ValueError(f"a run has no setting {name!r}{did_you_mean(name, known)}")
            if name in WORDS:
                alternatives[name] = words_of(name, value)
            elif name in NUMBERS and isinstance(value, str):
                alternatives[name] = (number_of(name, value),)
            else:
                fixed[name] = value

        space = cls(settings, alternatives, fixed)
        if not space.names:
            raise ValueError(
                "there is nothing to search: write a range such as lr=0.01..1~log, choices such as "
                "gamma=0|1|2, or several words"
            )
        for choose in space.examples():
            space.config(choose)
        return space

    @property
    def names(self) -> list[str]:
        """The names of all that is searched."""
        return [name for name, _ in self.domains()]

    def domains(self) -> Iterator[tuple[str, Domain]]:
        """Yield everything that is searched, by name; some of it only applies to some words."""
        for name, values in self.alternatives.items():
            if len(values) > 1:
                yield name, Choices(tuple(map(label_of, values)))
            for value in values:
                if isinstance(value, SearchWord):
                    yield from value.domains().items()
                elif value is not None and not isinstance(value, str):
                    yield name, value

    def config(self, choose: Choose) -> RunConfig:
        """Return the run that `choose` decides on."""
        settings = dict(self.fixed)
        for name, values in self.alternatives.items():
            value = values[0]
            if len(values) > 1:
                labels = [label_of(each) for each in values]
                value = values[labels.index(choose(name, Choices(tuple(labels))))]
            settings[name] = filled(name, value, choose)
        return RunConfig.of(settings)

    def examples(self) -> Iterator[Choose]:
        """Return ways to choose that show each word and each end of a range."""
        yield lambda name, domain: domain.examples[0]
        for chosen, domain in self.domains():
            for example in domain.examples[1:]:
                yield chooser(chosen, example)


def words_of(kind: str, values: str | Sequence[str | None] | None) -> tuple[Alternative, ...]:
    """Read the alternatives of a word; a number distinguishes two of the same method."""
    texts = [values] if values is None or isinstance(values, str) else list(values)
    words: list[Alternative] = []
    labels: list[str] = []

    for text in texts:
        if text is None or text == "none":
            words.append(None)
            continue
        word = parse_search(kind, text)
        labels.append(word.name)
        count = labels.count(word.name)
        words.append(word if count == 1 else word.labelled(f"{word.name}{count}"))
    return tuple(words)


def number_of(name: str, text: str) -> Alternative:
    """Read a number of a run, a range of it or choices."""
    kind = get_type_hints(RunConfig)[name]
    try:
        domain = read_domain(text, kind)
        for example in domain.examples if domain else (text,):
            as_number(name, example)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return domain or text


def as_number(name: str, text: str) -> object:
    """Read a value that was chosen, in the type of the setting `name` of a config."""
    if name == "batch" and text == "full":
        return None
    kind = get_type_hints(RunConfig)[name]
    value = read(text, kind)
    return float(value) if float in parts_of(kind) and value is not None else value


def filled(name: str, value: Alternative, choose: Choose) -> object:
    """Return the value of a setting, with all that is searched decided on."""
    if isinstance(value, SearchWord):
        return value.fill(choose)
    if value is None:
        return None
    return as_number(name, value if isinstance(value, str) else choose(name, value))


def label_of(value: Alternative) -> str:
    """Return what to call an alternative among others."""
    if isinstance(value, SearchWord):
        others = ",".join(f"{k}={v}" for k, v in value.items if isinstance(v, str))
        name = value.label or value.name
        return f"{name}:{others}" if others else name
    return str(value).lower()
