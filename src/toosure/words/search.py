"""Words to search over: `csam:rho=0.02..0.5~log,gamma=0|0.5|1|2` has a range and choices.

The grammar of words with two more spellings for the value of a setting:

- `LOW..HIGH` is a range, `LOW..HIGH~log` one of even chances for equal ratios, `LOW..HIGH~STEP` one
  of steps. A setting that takes whole numbers only is searched over whole numbers.
- `A|B|C` are choices: numbers, texts, words, `none`. (A sequence is written with colons here.)

A word in brackets may hold ranges and choices, too: `mdca:base=(focal:gamma=1..3)`.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from toosure.words.method import Method, Setting, find
from toosure.words.values import parts_of, read, write
from toosure.words.word import ITEM, known_settings, parse, split_name, split_setting

RANGE = re.compile(r"\s*([^~|]*?)\s*\.\.\s*([^~|]*?)\s*(?:~\s*(.*?)\s*)?")
CHOICE = re.compile(r'(?:"(?:\\.|[^"\\])*"|\((?:[^()]|\([^()]*\))*\)|[^|])+')
DIGITS = 4  # of a number that a search found: words and names of runs stay short


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    @property
    def examples(self) -> tuple[str, ...]:
        """The ends, as a word spells them."""
        return write(self.low), write(self.high)

    def spell(self, value: float) -> str:
        """Spell a number of the range, to four digits."""
        if self.whole:
            return str(int(value))
        rounded = float(f"{value:.{DIGITS}g}")
        return write(min(max(rounded, self.low), self.high))


@dataclass(frozen=True)
class Choices:
    """Values to choose from, each as a word spells it."""

    values: tuple[str, ...]

    @property
    def examples(self) -> tuple[str, ...]:
        return self.values


Domain = Range | Choices
Choose = Callable[[str, Domain], str]  # from a name and what there is to choose from, to the text


@dataclass(frozen=True)
class SearchWord:
    """A word with settings that are ranges or choices.

    >>> word = parse_search("optimizer", "sgd:lr=0.01..1~log,momentum=0|0.9")
    >>> list(word.domains()), word.fill(lambda name, domain: domain.examples[-1])
    (['sgd.lr', 'sgd.momentum'], 'sgd:lr=1,momentum=0.9')
    """

    kind: str
    name: str
    items: tuple[tuple[str, "str | Domain | SearchWord"], ...] = ()
    label: str = ""  # before the names of its settings

    def domains(self) -> dict[str, Domain]:
        """What there is to search, by name."""
        domains: dict[str, Domain] = {}

        def note(name: str, domain: Domain) -> str:
            domains[name] = domain
            return domain.examples[0]

        self.fill(note)
        return domains

    def fill(self, choose: Choose) -> str:
        """Return the word with a value for each range and choice."""
        texts = []
        for key, value in self.items:
            if isinstance(value, SearchWord):
                text = f"({value.fill(choose)})"
            elif isinstance(value, str):
                text = value
            else:
                text = choose(f"{self.label}.{key}", value)
            texts.append(f"{key}={text}")

        if not texts:
            return self.name
        return self.name + ("," if ":" in self.name else ":") + ",".join(texts)

    def labelled(self, label: str) -> "SearchWord":
        """Return the word with another label before the names of its settings."""
        items = tuple(
            (key, v.labelled(f"{label}.{key}") if isinstance(v, SearchWord) else v)
            for key, v in self.items
        )
        return replace(self, items=items, label=label)


def parse_search(kind: str, text: str) -> SearchWord:
    """Read a word that may have ranges and choices; a mistake in any part raises ValueError."""
    word = read_search(kind, text).labelled(split_name(kind, text.strip())[0])
    for filled in examples_of(word):
        parse(kind, filled)
    return word


def read_search(kind: str, text: str) -> SearchWord:
    """Read a word with its ranges and choices; `parse_search` checks what it can become."""
    name, rest = split_name(kind, text.strip())
    method = find(kind, name)
    pairs = [
        split_setting(method, item.strip(), first=position == 0)
        for position, item in enumerate(i for i in ITEM.findall(rest) if i.strip())
    ]
    texts = dict(pairs)
    if len(texts) < len(pairs):
        parse(kind, text)  # raises, and names the setting that is given twice

    return SearchWord(
        kind, name, tuple((key, read_item(method, texts, key)) for key in texts), name
    )


def read_item(method: Method, texts: dict[str, str], key: str) -> str | Domain | SearchWord:
    """Read the value of one setting: as it is, or what there is to search."""
    text = texts[key]
    setting = setting_of(method, texts, key)
    if setting is None:
        return text  # `parse` raises on it

    if setting.takes and text.startswith("(") and text.endswith(")"):
        inner = read_search(setting.takes, text[1:-1])
        return inner if inner.domains() else text
    try:
        return read_domain(text, setting.type) or text
    except ValueError as error:
        raise ValueError(f"{method.name}: {key}: {error}") from error


def setting_of(method: Method, texts: dict[str, str], key: str) -> Setting | None:
    """Find a setting of the method, or of any base that it may be given."""
    bases = CHOICE.findall(texts.get("base", "")) or [None]
    for base in bases:
        bracketed = base is not None and base.startswith("(") and base.endswith(")")
        inner = base[1:-1] if base is not None and bracketed else base
        word = None if inner is None else parse(method.kind, first_example(method.kind, inner))
        settings = known_settings(method, word)
        if key in settings:
            return settings[key]
    return None


def first_example(kind: str, text: str) -> str:
    """Return a word without ranges and choices: the first of each."""
    return next(examples_of(read_search(kind, text)))


def read_domain(text: str, kind: object) -> Domain | None:
    """Read a range or choices of an annotated type; None if the text is neither.

    >>> read_domain("8/255..16/255", float).low, read_domain("1..9~2", int), read_domain("3", int)
    (0.03137254901960784, Range(low=1, high=9, log=False, step=2, whole=True), None)
    """
    if text.startswith('"') and text.endswith('"'):
        return None
    values = tuple(choice.strip() for choice in CHOICE.findall(text))
    if "|" in re.sub(r'"(?:\\.|[^"\\])*"|\([^()]*\)', "", text):
        return read_choices(text, values)

    match = RANGE.fullmatch(text)
    numeric = [part for part in parts_of(kind) if part in (int, float)]
    if not match or not numeric:
        return None
    return read_range(text, match[1], match[2], match[3], whole=numeric == [int])


def read_choices(text: str, values: tuple[str, ...]) -> Choices:
    """Return choices; raise if one is empty, occurs twice, or is a range."""
    if len(values) != text.count("|") + 1 and "(" not in text:
        raise ValueError(f"choices read A|B|C, none of them empty; got {text!r}")
    twice = [value for value in values if values.count(value) > 1]
    if twice or len(values) < 2:
        raise ValueError(f"choices must differ; got {text!r}")
    if any(RANGE.fullmatch(value) and re.search(r"\d\s*\.\.", value) for value in values):
        raise ValueError(f"a choice cannot be a range; got {text!r}")
    return Choices(values)


def read_range(text: str, low: str, high: str, how: str | None, whole: bool) -> Range:
    """Read the ends of a range and what follows the ~."""
    kind = int if whole else float
    try:
        first = read(low, kind)
        last = read(high, kind)
        step = None if how in (None, "log") else read(how, kind)
    except ValueError as error:
        raise ValueError(
            f"a range reads LOW..HIGH, LOW..HIGH~log or LOW..HIGH~STEP; got {text!r} ({error})"
        ) from error

    if not -math.inf < first < last < math.inf:
        raise ValueError(f"a range must rise from a finite number to another; got {text!r}")
    if how == "log" and first <= 0:
        raise ValueError(f"a range of ratios (~log) begins above 0; got {text!r}")
    if step is not None and not 0 < step <= last - first:
        raise ValueError(f"the step of a range is above 0 and fits into it; got {text!r}")
    return Range(first, last, how == "log", step, whole)


def examples_of(word: SearchWord) -> Iterator[str]:
    """Return words that show each choice and each end of a range once, the others at their first.

    A base that has no such setting is found so, before anything is trained.
    """
    yield word.fill(lambda name, domain: domain.examples[0])
    for name, domain in word.domains().items():
        for example in domain.examples[1:]:
            yield word.fill(chooser(name, example))


def chooser(chosen: str, example: str) -> Choose:
    """Return a function that chooses `example` of one domain, and the first of each other."""
    return lambda name, domain: example if name == chosen else domain.examples[0]
