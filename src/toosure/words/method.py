"""Find the method behind a name, and read its settings, summary and reference off the method."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from toosure.words.tables import ABOUT, GIVEN, TABLES, UNSAID
from toosure.words.values import can_say, describe, parts_of, write

OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:name, a method of one's own
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Setting:
    """Describe one argument of a method that a word can set."""

    name: str
    type: Any  # an annotation; None where the value is itself a word
    default: Any  # REQUIRED where there is none; a word's text where the value is a word
    takes: str = ""  # the kind of method it takes, where the value is itself a word

    @property
    def leads(self) -> bool:
        """Say whether it can come first without its name, as the path in imagefolder:PATH."""
        return self.default is REQUIRED and any(part in (Path, str) for part in parts_of(self.type))

    def write(self, value: Any) -> str:
        """Spell a value of this setting."""
        if not self.takes or value is None:
            return write(value, self.type)
        return f"({value})" if re.search("[,=]", str(value)) else str(value)

    def __str__(self) -> str:
        if self.default is REQUIRED:
            return f"{self.name} ({describe(self.type) or self.takes})"
        return f"{self.name}={self.write(self.default)}"


@dataclass(frozen=True)
class Method:
    """Name a method of a kind; its module is loaded when it is first needed."""

    kind: str
    name: str
    place: str  # module:attribute

    @cached_property
    def target(self) -> Callable:
        """The class or function itself."""
        module, _, attribute = self.place.partition(":")
        try:
            found: Any = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            hint = nearest(module, TABLES[self.kind])
            raise ValueError(f"cannot load the {self.kind} {self.place}: {error}{hint}") from error
        if not callable(found):
            raise ValueError(f"{self.place} is a {type(found).__name__}, not a class or function")
        return found

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments of the signature, annotations evaluated where they can be."""
        try:
            return inspect.signature(self.target, eval_str=True).parameters
        except NameError:  # an annotation that exists only for type checkers
            return inspect.signature(self.target).parameters

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """The settings a word can give, in the order of the signature."""
        hidden = GIVEN.get(self.kind, set()) | UNSAID
        found = (self.setting(p) for name, p in self.parameters.items() if name not in hidden)
        return {setting.name: setting for setting in found if setting}

    def setting(self, parameter: inspect.Parameter) -> Setting | None:
        """Turn an argument into a setting, or into nothing if no text can say it."""
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            return None
        annotation, default = parameter.annotation, parameter.default
        if annotation is REQUIRED or isinstance(annotation, str):
            annotation = guess(default)
        if can_say(annotation):
            return Setting(parameter.name, annotation, default)
        if parameter.name not in ("base", "loss"):
            return None
        takes = self.kind if parameter.name == "base" else "loss"
        return Setting(parameter.name, None, name_of(takes, default), takes)

    @property
    def passes_to(self) -> str:
        """Say where settings it does not know go: "base", a word such as "sgd", or nowhere ("").

        A last argument **base_arguments or **sgd_arguments says so in the signature.
        """
        rest = [p.name for p in self.parameters.values() if p.kind is p.VAR_KEYWORD]
        name = rest[0].removesuffix("_arguments") if rest else ""
        return name if name in self.settings or name in TABLES[self.kind] else ""

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        own = (inspect.getdoc(self.target) or "").split("\n\n")[0]
        return ABOUT[self.name][0] if self.name in ABOUT else " ".join(own.split())

    @property
    def reference(self) -> str:
        """The paper its docstring names, or nothing."""
        if self.name in ABOUT:
            return ABOUT[self.name][1]
        text = inspect.getdoc(self.target) or ""
        match = re.search(r"References?: (.+?)(?:\n\s*\n|$)", text, re.DOTALL)
        return " ".join(match[1].split()).rstrip(".") if match else ""


def find(kind: str, name: str) -> Method:
    """Find a method by its name, or by package.module:name for one's own.

    >>> find("optimizer", "sgd").place
    'torch.optim:SGD'
    """
    table = table_of(kind)
    if name in table:
        return Method(kind, name, table[name])
    if OWN.fullmatch(name):
        return Method(kind, name, name)
    first, comma, rest = name.partition(",")
    if comma and first in table:
        raise ValueError(f"settings follow a colon: write {first}:{rest}; got {name!r}")
    if others := [other for other, names in TABLES.items() if name in names]:
        raise ValueError(
            f"no {kind} is called {name!r}, but one {others[0]} is: --{others[0]} {name}"
        )
    known = ", ".join(sorted(table)) or "none yet"
    raise ValueError(
        f"no {kind} is called {name!r}{nearest(name, table)} Known: {known}; "
        "your own is written package.module:name"
    )


def methods(kind: str) -> Iterator[Method]:
    """List the methods of a kind, with settings, summary and reference.

    >>> [method.name for method in methods("model")][:2]
    ['mlp', 'resnet20']
    """
    return (find(kind, name) for name in table_of(kind))


def table_of(kind: str) -> dict[str, str]:
    if kind not in TABLES:
        known = ", ".join(TABLES)
        raise ValueError(
            f"no kind of method is called {kind!r}{nearest(kind, TABLES)} Kinds: {known}"
        )
    return TABLES[kind]


def guess(default: Any) -> Any:
    """Type a setting without annotation by its default; where that is 0, 0.5 will do too."""
    if isinstance(default, bool | float | str):
        return type(default)
    return int | float if isinstance(default, int) else Any


def name_of(kind: str, default: Any) -> Any:
    """Name the method that is the default of a setting."""
    if default is REQUIRED or default is None:
        return default
    matches = (m.name for m in methods(kind) if m.target in (default, type(default)))
    return next(matches, None)


def nearest(name: str, known: Iterable[str]) -> str:
    spelled = {each.lower(): each for each in known}
    match = get_close_matches(name.lower(), list(spelled), n=1, cutoff=0.5)
    return f"; did you mean {spelled[match[0]]!r}?" if match else "."
