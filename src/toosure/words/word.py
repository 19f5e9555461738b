"""Read a word into a method and typed settings, and spell it back in one canonical way."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toosure.words.method import OWN, REQUIRED, Method, Setting, find, nearest, table_of
from toosure.words.values import read

ITEM = re.compile(r'(?:"(?:\\.|[^"\\])*"|\((?:[^()]|\([^()]*\))*\)|[^,])+')


@dataclass(frozen=True)
class Word:
    """Hold a method and what was said of its settings, defaults left out; `str` spells it."""

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
        items = [
            ("" if known[name].leads and place == 0 else f"{name}=") + known[name].write(value)
            for place, (name, value) in enumerate(self.settings.items())
        ]
        joint = "," if ":" in self.name else ":"
        return joint.join([self.name, ",".join(items)]) if items else self.name

    def build(self, *arguments: Any, **given: Any) -> Any:
        """Call the method with these settings, and with what its signature knows of `given`.

        >>> parse("model", "mlp:width=50").build(inputs=(1, 8, 8), classes=10).head
        Linear(in_features=50, out_features=10, bias=True)
        """
        known = {name: v for name, v in given.items() if name in self.method.parameters}
        said = {name: self.argument(name, v, given) for name, v in self.settings.items()}
        return self.method.target(*arguments, **{**known, **said})

    def argument(self, name: str, value: Any, given: Mapping[str, Any]) -> Any:
        """Turn a word among the settings into what it names: a class to pass to, or an object."""
        if not isinstance(value, Word):
            return value
        return value.method.target if name == self.method.passes_to else value.build(**given)


def parse(kind: str, text: str) -> Word:
    """Read a word; a name or setting that does not exist is an error that gives the nearest.

    >>> word = parse("optimizer", "sgd:momentum=0.9,lr=1/10")
    >>> word.name, dict(word.settings), str(word)
    ('sgd', {'lr': 0.1, 'momentum': 0.9}, 'sgd:lr=0.1,momentum=0.9')
    """
    name, rest = halves(kind, text.strip())
    method = find(kind, name)
    said: dict[str, str] = {}
    for place, item in enumerate(i.strip() for i in ITEM.findall(rest) if i.strip()):
        key, value = keyed(method, item, first=place == 0)
        if key in said:
            raise ValueError(f"{name}: {key} is given twice")
        said[key] = value
    return make(method, said)


def spell(kind: str, name: str, settings: Mapping[str, Any]) -> str:
    """Spell a method and its settings so that equal settings give equal text.

    >>> spell("optimizer", "sgd", {"momentum": 0.9, "lr": 0.1, "nesterov": False})
    'sgd:lr=0.1,momentum=0.9'
    """
    method = find(kind, name)
    base = settings.get("base")
    known = known_settings(method, None if base is None else parse(kind, str(base)))
    said = {k: known[k].write(v) if k in known else str(v) for k, v in settings.items()}
    return str(make(method, said))


def halves(kind: str, text: str) -> tuple[str, str]:
    """Split name:settings, or package.module:name,settings for a method of one's own."""
    name, _, rest = text.partition(":")
    own = OWN.match(text)
    if name.strip() not in table_of(kind) and own and text[own.end() :][:1] in ("", ","):
        return own[0], text[own.end() + 1 :]
    return name.strip(), rest


def keyed(method: Method, item: str, first: bool) -> tuple[str, str]:
    """Split setting=value; the first item may be the bare value of a setting that leads."""
    key, equals, value = item.partition("=")
    if equals and key.strip().isidentifier():
        return key.strip(), value.strip()
    leading = [setting.name for setting in method.settings.values() if setting.leads]
    if first and leading:
        return leading[0], item
    raise ValueError(f"{method.name}: expected setting=value; got {item!r}{listing(method)}")


def make(method: Method, said: Mapping[str, str]) -> Word:
    """Type what was said by the signature, and leave the defaults out."""
    said, base = flatten(method, dict(said))
    known = known_settings(method, base)
    for name in said:
        if name not in known:
            hint = nearest(name, known)
            raise ValueError(f"{method.name} has no setting {name!r}{hint}{listing(method, base)}")
    for name, setting in known.items():
        if setting.default is REQUIRED and name not in said:
            raise ValueError(f"{method.name} needs {setting}: write {method.name}:{name}=...")
    values = {n: typed(method, s, said[n]) for n, s in known.items() if n in said}
    return Word(method, {n: v for n, v in values.items() if not same(v, known[n].default)})


def flatten(method: Method, said: dict[str, str]) -> tuple[dict[str, str], Word | None]:
    """Write base=(adamw:lr=1) as base=adamw, lr=1 where the method passes settings to its base."""
    if method.passes_to != "base" or "base" not in said:
        return said, None
    base = typed(method, method.settings["base"], said["base"])
    inner = {name: base.method.settings[name].write(v) for name, v in base.settings.items()}
    if twice := [name for name in inner if name in said or name in method.settings]:
        raise ValueError(f"{method.name}: {twice[0]} is given twice, or to two methods")
    return {**said, **inner, "base": base.name}, base


def known_settings(method: Method, base: Word | None = None) -> dict[str, Setting]:
    """Join the method's settings with those of the method it passes the unknown ones to."""
    receiver = method.passes_to
    if receiver == "base":
        receiver = base.name if base else method.settings["base"].default
    if not isinstance(receiver, str) or not receiver:
        return method.settings
    passed = find(method.kind, receiver).settings
    return {**method.settings, **{n: s for n, s in passed.items() if n not in method.parameters}}


def typed(method: Method, setting: Setting, text: str) -> Any:
    """Read a value by the type of its setting, or as a word."""
    try:
        if not setting.takes:
            return read(text, setting.type)
        bracketed = text.startswith("(") and text.endswith(")")
        return parse(setting.takes, text[1:-1] if bracketed else text)
    except ValueError as error:
        colon = ":" if setting.takes else ""
        raise ValueError(f"{method.name}: {setting.name}{colon} {error}") from error


def listing(method: Method, base: Word | None = None) -> str:
    return " Its settings: " + (
        ", ".join(map(str, known_settings(method, base).values())) or "none"
    )


def same(value: Any, default: Any) -> bool:
    """Compare a value with the default; True is not 1, and a word is its spelling."""
    if isinstance(value, Word):
        return str(value) == default
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)
