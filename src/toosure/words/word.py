"""Read a word into a method and typed settings, and spell it back in one canonical way."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toosure.sentences import did_you_mean
from toosure.words.method import OWN, REQUIRED, Method, Setting, find, table_of
from toosure.words.values import read

# One setting=value: commas in quotes, or in brackets nested up to twice, do not end it.
ITEM = re.compile(r'(?:"(?:\\.|[^"\\])*"|\((?:[^()]|\([^()]*\))*\)|[^,])+')
SEARCHED = "; ranges and choices such as 0.02..0.5~log and 1|2 are for `toosure tune`"


@dataclass(frozen=True)
class Word:
    """Hold a method and its settings that differ from the defaults; `str` spells it."""

    method: Method
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> str:
        return self.method.kind

    @property
    def name(self) -> str:
        return self.method.name

    def __str__(self) -> str:
        known = known_settings(self.method, self.settings.get("base"))
        items = []
        for position, (name, value) in enumerate(self.settings.items()):
            text = known[name].write(value)
            items.append(text if known[name].leads and position == 0 else f"{name}={text}")

        if not items:
            return self.name
        separator = "," if ":" in self.name else ":"
        return self.name + separator + ",".join(items)

    def value(self, name: str) -> Any:
        """Return the value of a setting: the given one, or the default.

        >>> parse("optimizer", "sam:rho=0.1").value("rho"), parse("optimizer", "sam").value("rho")
        (0.1, 0.05)
        """
        return self.settings.get(name, self.method.settings[name].default)

    def build(self, *arguments: Any, **injected: Any) -> Any:
        """Call the method with these settings and the `injected` values it has arguments for.

        >>> parse("model", "mlp:width=50").build(inputs=(1, 8, 8), classes=10).head
        Linear(in_features=50, out_features=10, bias=True)
        """
        accepted = {name: v for name, v in injected.items() if name in self.method.parameters}
        settings = {name: self.argument(name, v, injected) for name, v in self.settings.items()}
        return self.method.target(*arguments, **{**accepted, **settings})

    def argument(self, name: str, value: object, injected: Mapping[str, object]) -> object:
        """Build the object that a word among the settings names.

        A base that receives forwarded settings is passed as its class, for the method to build.
        """
        if not isinstance(value, Word):
            return value
        return value.method.target if name == self.method.passes_to else value.build(**injected)


def parse(kind: str, text: str) -> Word:
    """Read a word; a name or setting that does not exist is an error that gives the nearest.

    >>> word = parse("optimizer", "sgd:momentum=0.9,lr=1/10")
    >>> word.name, dict(word.settings), str(word)
    ('sgd', {'lr': 0.1, 'momentum': 0.9}, 'sgd:lr=0.1,momentum=0.9')
    """
    name, items = split_name(kind, text.strip())
    method = find(kind, name)

    texts: dict[str, str] = {}
    for position, item in enumerate(i.strip() for i in ITEM.findall(items) if i.strip()):
        key, value = split_setting(method, item, first=position == 0)
        if key in texts:
            raise ValueError(f"{name}: {key} is given twice")
        texts[key] = value
    return word_of(method, texts)


def spell(kind: str, name: str, settings: Mapping[str, Any]) -> str:
    """Spell a method and its settings so that equal settings give equal text.

    >>> spell("optimizer", "sgd", {"momentum": 0.9, "lr": 0.1, "nesterov": False})
    'sgd:lr=0.1,momentum=0.9'
    """
    method = find(kind, name)
    base = settings.get("base")
    known = known_settings(method, None if base is None else parse(kind, str(base)))
    texts = {k: known[k].write(v) if k in known else str(v) for k, v in settings.items()}
    return str(word_of(method, texts))


def split_name(kind: str, text: str) -> tuple[str, str]:
    """Split name:settings, or package.module:name,settings for a method of your own."""
    name, _, settings = text.partition(":")
    own = OWN.match(text)
    if name.strip() not in table_of(kind) and own:
        following, rest = text[own.end() :][:1], text[own.end() + 1 :]
        if following == ":":
            raise ValueError(f"settings of your own follow a comma: write {own[0]},{rest}")
        if following in ("", ","):
            return own[0], rest
    return name.strip(), settings


def split_setting(method: Method, item: str, first: bool) -> tuple[str, str]:
    """Split setting=value; the first item may be the bare value of a setting that leads."""
    key, equals, value = item.partition("=")
    if equals and key.strip().isidentifier():
        return key.strip(), value.strip()

    leading = [setting.name for setting in method.settings.values() if setting.leads]
    if first and leading:
        return leading[0], item
    several = "" if first else "; each of several values is a word of its own: NAME:A=1 NAME:A=2"
    raise ValueError(
        f"{method.name}: expected setting=value; got {item!r}{several}.{listing(method)}"
    )


def word_of(method: Method, texts: Mapping[str, str]) -> Word:
    """Type the text of each setting by the signature, and leave the defaults out."""
    texts, base = flatten(method, dict(texts))
    known = known_settings(method, base)

    for name in texts:
        if name not in known:
            hint = did_you_mean(name, known, ".")
            raise ValueError(f"{method.name} has no setting {name!r}{hint}{listing(method, base)}")
    for name, setting in known.items():
        if setting.default is REQUIRED and name not in texts:
            raise ValueError(f"{method.name} needs {setting}: write {method.name}:{name}=...")

    # In the order of the signature, so that equal settings have one spelling.
    values = {n: typed(method, s, texts[n]) for n, s in known.items() if n in texts}
    return Word(method, {n: v for n, v in values.items() if not is_default(v, known[n].default)})


def flatten(method: Method, texts: dict[str, str]) -> tuple[dict[str, str], Word | None]:
    """Write base=(adamw:lr=1) as base=adamw, lr=1 if the method passes settings to its base."""
    if method.passes_to != "base" or "base" not in texts:
        return texts, None

    base = typed(method, method.settings["base"], texts["base"])
    inner = {name: base.method.settings[name].write(v) for name, v in base.settings.items()}
    if twice := [name for name in inner if name in texts or name in method.settings]:
        raise ValueError(f"{method.name}: {twice[0]} is given twice, or to two methods")
    return {**texts, **inner, "base": base.name}, base


def known_settings(method: Method, base: Word | None = None) -> dict[str, Setting]:
    """Return the method's settings and those of the method that gets the unknown ones."""
    receiver = method.passes_to
    if receiver == "base":
        receiver = base.name if base else method.settings["base"].default
    if not isinstance(receiver, str) or not receiver:
        return method.settings

    forwarded = find(method.kind, receiver).settings
    others = {name: s for name, s in forwarded.items() if name not in method.parameters}
    return {**method.settings, **others}


def typed(method: Method, setting: Setting, text: str) -> Any:
    """Read a value by the type of its setting, or as a word."""
    try:
        if not setting.takes:
            return read(text, setting.type)
        bracketed = text.startswith("(") and text.endswith(")")
        return parse(setting.takes, text[1:-1] if bracketed else text)
    except ValueError as error:
        colon = ":" if setting.takes else ""
        hint = SEARCHED if not setting.takes and re.search(r"\d\.\.|\|", text) else ""
        raise ValueError(f"{method.name}: {setting.name}{colon} {error}{hint}") from error


def listing(method: Method, base: Word | None = None) -> str:
    """Return the sentence that lists every setting a word may give."""
    settings = ", ".join(map(str, known_settings(method, base).values()))
    return f" Its settings: {settings or 'none'}"


def is_default(value: object, default: object) -> bool:
    """Compare a value with the default; True is not 1, and a word is compared by its spelling."""
    if isinstance(value, Word):
        return str(value) == default
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)
