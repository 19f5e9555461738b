"""Find the method behind a name, and read its settings, summary and reference off the method.

The signature of a method is its grammar. These are all the rules:

- An argument whose annotation can be written as text (a number, text, a choice, a tuple of them)
  is a setting. Without an annotation, the type of the default decides.
- An argument called `base` takes a word of the method's own kind, and one called `loss` takes a
  loss: `sam:base=adamw`, `mdca:base=(focal:gamma=1)`.
- A method may forward the settings that it does not know. Its attribute `passes_arguments_to` says
  where: "base" is the method given as `base`, a name such as "sgd" is that method, "" is nowhere.
  Without the attribute, the name of its last argument says it: `**base_arguments` or
  `**sgd_arguments`. Any other name forwards none.
- The arguments in `tables.INJECTED` are passed by the caller, and those in `tables.HIDDEN` are
  left alone: neither is a setting.
- The first line of the docstring is the summary; the text after `Reference:` is the reference.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from toosure.sentences import did_you_mean
from toosure.words.tables import HIDDEN, INJECTED, TABLES, TORCH_DOCS
from toosure.words.values import describe, is_writable, parts_of, write

OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:name, a user's own method
REQUIRED = inspect.Parameter.empty
WORD_ARGUMENTS = ("base", "loss")  # arguments that take a word
FORWARDING_SUFFIX = "_arguments"  # of **base_arguments and **sgd_arguments


@dataclass(frozen=True)
class Setting:
    """Describe one argument of a method that a word can set."""

    name: str
    type: object  # an annotation; None if the value is itself a word
    default: Any  # REQUIRED if there is none; a word's text if the value is a word
    takes: str = ""  # the kind of method it takes, if the value is itself a word

    @property
    def leads(self) -> bool:
        """Whether it can come first without its name, as the path in imagefolder:PATH."""
        return self.default is REQUIRED and any(part in (Path, str) for part in parts_of(self.type))

    def write(self, value: object) -> str:
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
    def target(self) -> Callable[..., Any]:
        """The class or function itself."""
        module, _, attribute = self.place.partition(":")
        try:
            target: object = import_module(module)
            for part in attribute.split("."):
                target = getattr(target, part)
        except (ImportError, AttributeError) as error:
            hint = self.loading_hint(error)
            raise ValueError(f"cannot load the {self.kind} {self.place}: {error}{hint}") from error

        if not callable(target):
            raise ValueError(f"{self.place} is a {type(target).__name__}, not a class or function")
        return target

    def loading_hint(self, error: ImportError | AttributeError) -> str:
        """Say what a place that cannot be loaded may have meant."""
        module, _, attribute = self.place.partition(":")
        if isinstance(error, AttributeError):
            return did_you_mean(attribute, public_names(sys.modules.get(module)), ".")
        if error.name != module.partition(".")[0]:  # it imports something that is missing
            return "."
        return did_you_mean(module, TABLES[self.kind], cutoff=0.75) or (
            f": run it in the folder of {module.partition('.')[0]}.py, or put that folder on "
            "PYTHONPATH"
        )

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments of the signature, annotations evaluated where they can be."""
        try:
            return inspect.signature(self.target, eval_str=True).parameters
        except NameError:  # an annotation that exists only for type checkers
            return inspect.signature(self.target).parameters

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """The settings that a word can give, in the order of the signature."""
        excluded = INJECTED.get(self.kind, set()) | HIDDEN
        arguments = [p for name, p in self.parameters.items() if name not in excluded]
        settings = [setting for p in arguments if (setting := self.setting(p))]
        return {setting.name: setting for setting in settings}

    def setting(self, parameter: inspect.Parameter) -> Setting | None:
        """Turn an argument into a setting, or into None if no text can give its value."""
        name, default = parameter.name, parameter.default
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            return None

        annotation = parameter.annotation
        if annotation is REQUIRED or isinstance(annotation, str):
            annotation = type_of_default(default)
        if is_writable(annotation):
            return Setting(name, annotation, default)

        if name not in WORD_ARGUMENTS:
            return None
        takes = self.kind if name == "base" else "loss"
        return Setting(name, None, name_of_default(takes, default), takes)

    @property
    def passes_to(self) -> str:
        """The receiver of settings that it does not know: "base", a name such as "sgd", or ""."""
        declared = getattr(self.target, "passes_arguments_to", None)
        if isinstance(declared, str):
            return declared

        keywords = [p.name for p in self.parameters.values() if p.kind is p.VAR_KEYWORD]
        if not keywords:
            return ""
        receiver = keywords[0].removesuffix(FORWARDING_SUFFIX)
        return receiver if receiver in self.settings or receiver in TABLES[self.kind] else ""

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        if self.name in TORCH_DOCS:
            return TORCH_DOCS[self.name][0]
        paragraph = (inspect.getdoc(self.target) or "").split("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def reference(self) -> str:
        """The paper that its docstring names, or nothing."""
        if self.name in TORCH_DOCS:
            return TORCH_DOCS[self.name][1]
        text = inspect.getdoc(self.target) or ""
        match = re.search(r"References?: (.+?)(?:\n\s*\n|$)", text, re.DOTALL)
        return " ".join(match[1].split()).rstrip(".") if match else ""


def public_names(module: object) -> list[str]:
    """Return the names of a module that are meant for others."""
    return [name for name in dir(module) if not name.startswith("_")]


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

    if kind == "data" and name.lower().endswith(".npz"):
        raise ValueError(f"no data is called {name!r}: write arrays:{name}")
    if kind == "data" and Path(name).is_dir():
        raise ValueError(f"no data is called {name!r}: write imagefolder:{name}")

    known = ", ".join(sorted(table)) or "none yet"
    hint = did_you_mean(name, table, ".")
    raise ValueError(
        f"no {kind} is called {name!r}{hint} Known: {known}; "
        "your own is written package.module:name"
    )


def methods(kind: str) -> Iterator[Method]:
    """List the methods of a kind, with settings, summary and reference.

    >>> [method.name for method in methods("model")][:2]
    ['mlp', 'resnet20']
    """
    return (Method(kind, name, place) for name, place in table_of(kind).items())


def table_of(kind: str) -> dict[str, str]:
    """Return the names and places of the methods of a kind; raise if there is no such kind."""
    if kind not in TABLES:
        known = ", ".join(TABLES)
        hint = did_you_mean(kind, TABLES, ".")
        raise ValueError(f"no kind of method is called {kind!r}{hint} Kinds: {known}")
    return TABLES[kind]


def type_of_default(default: object) -> object:
    """Type a setting without annotation by its default; an integer default allows floats, too."""
    if isinstance(default, bool | float | str):
        return type(default)
    return int | float if isinstance(default, int) else Any


def name_of_default(kind: str, default: object) -> object:
    """Return the name of the method that is the default of a setting; None and REQUIRED stay."""
    if default is REQUIRED or default is None:
        return default
    names = (m.name for m in methods(kind) if m.target in (default, type(default)))
    return next(names, None)
