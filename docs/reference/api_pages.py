"""The API as Markdown pages, one per module: every public name with its signature and docstring.

Neither Sphinx nor a page written by hand is needed: `__all__` of a module says what is public, and
the docstrings, which are Markdown in all but name, say what it is. A module without `__all__` is
listed in `NAMES_OF_FILES`.
"""

import dataclasses
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from field_comments import field_lines

import toosure

# The public names of modules without `__all__`: what our pages tell people to import.
NAMES_OF_FILES: dict[str, tuple[str, ...]] = {
    "toosure.binary": ("TwoColumns", "two_columns", "two_column_probs", "one_column"),
    "toosure.config": ("RunConfig", "sweep_of"),
    "toosure.ensembles.averages": ("EMA", "SWA", "SWAG"),
    "toosure.evaluate.paired": ("Comparison", "Difference", "compare"),
    "toosure.evaluate.verdict": ("Verdict", "verdict"),
    "toosure.integrations.lightning": ("WatchCallback",),
    "toosure.integrations.mlflow": ("rows_to",),
    "toosure.integrations.row_sender": ("RowSender",),
    "toosure.integrations.search_space": ("SearchSpace",),
    "toosure.integrations.skorch": ("WatchCallback",),
    "toosure.integrations.tensorboard": ("rows_to",),
    "toosure.integrations.tune": ("tune",),
    "toosure.integrations.wandb": ("rows_to",),
    "toosure.metrics.streaming": (
        *("ECE", "MCE", "AdaptiveECE", "ClasswiseECE", "ReliabilityTable"),
        *("NLL", "Brier", "Accuracy"),
    ),
    "toosure.optim.schedules": ("Constant", "StepDecay", "Cosine"),
    "toosure.page.calibration": ("calibration_page",),
    "toosure.page.evaluation": ("evaluation_page",),
    "toosure.page.live": ("make_app", "serve"),
    "toosure.page.multilabel": ("multilabel_page",),
    "toosure.page.report": ("report",),
    "toosure.recalibration": ("Recalibration", "recalibrate"),
    "toosure.shifts.judge": ("judge_shifts",),
    "toosure.shifts.ood_sets": ("load_ood_set",),
    "toosure.shifts.plan": ("ShiftPlan",),
    "toosure.shifts.record": ("ShiftRecord",),
    "toosure.sklearn": ("CalibratedClassifier",),
}
NOT_FOR_USERS = {"toosure.cli"}  # its names are the command line, which has a page of its own
TOP = ("Watch", "Run", "RunConfig", "calibrate")  # of `toosure` itself
SPECIAL = ("__call__", "__getitem__")  # worth a line where a class has written it


@cache
def public_names() -> dict[str, tuple[str, ...]]:
    """Return the public names of every module, by the module that users import them from."""
    names: dict[str, tuple[str, ...]] = {"toosure": TOP}
    for info in pkgutil.walk_packages(toosure.__path__, "toosure."):
        if info.name in NAMES_OF_FILES:
            names[info.name] = NAMES_OF_FILES[info.name]
        elif declares_all(info) and info.name not in NOT_FOR_USERS:
            names[info.name] = tuple(import_module(info.name).__all__)
    return names


def declares_all(info: pkgutil.ModuleInfo) -> bool:
    """Say whether a module has `__all__`, without importing it."""
    spec = info.module_finder.find_spec(info.name, None)
    assert spec is not None and spec.origin is not None
    return "\n__all__ = [" in Path(spec.origin).read_text(encoding="utf-8")


def write_pages(folder: Path) -> list[Path]:
    """Write one page per module, remove pages of modules that are gone, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {folder / f"{module}.md": page_of(module) for module in public_names()}
    for old in set(folder.glob("*.md")) - set(pages):
        old.unlink()
    for file, text in pages.items():
        write_if_changed(file, text)
    return sorted(pages)


def write_if_changed(file: Path, text: str) -> None:
    """Write a file unless it is the same already, so that Sphinx need not read it again."""
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def page_of(module_name: str) -> str:
    """Return the page of a module; where an extra is missing, it says which package."""
    try:
        module = import_module(module_name)
    except ImportError as error:
        return f"# {module_name}\n\nNot described here: `{error}` when this site was built.\n"

    lines = [f"# {module_name}", "", *module_description(module), ""]
    lines += [f"```{{py:module}} {module_name}", "```", ""]
    for group in grouped(module, public_names()[module_name]):
        lines += [*group, ""]
    return "\n".join(lines)


def module_description(module: ModuleType) -> list[str]:
    """Return what a module says of itself; a table of methods or the like stays as it is."""
    return markdown_lines(inspect.getdoc(module) or "")


def grouped(module: ModuleType, names: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the entries of a module's names, under a heading for each file they come from.

    What is called as the module itself, such as `evaluate`, comes first.
    """
    main = module.__name__.rsplit(".", 1)[-1]
    files: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: name.lower() != main):
        files.setdefault(file_of(getattr(module, name), module), []).append(name)

    for file, members in files.items():
        if len(files) > 1:
            yield [f"## {heading_of(file)}"]
        for name in sorted(members, key=lambda name: (name.lower() != main, name.lower())):
            thing = getattr(module, name)
            yield older_name(name, thing) if is_older_name(name, thing) else entry(name, thing)


def is_older_name(name: str, thing: object) -> bool:
    """Say whether a class has another name now, and this one is kept for old scripts."""
    return inspect.isclass(thing) and thing.__name__ != name


def older_name(name: str, thing: type) -> list[str]:
    """Return the entry of an older name, which leads to the new one."""
    return [f"``````{{py:class}} {name}", "", f"An older name of `{thing.__name__}`.", "``````"]


def file_of(thing: object, module: ModuleType) -> str:
    """Return the module in which a name is defined; data belong to the module that shows them."""
    where = getattr(thing, "__module__", None)
    is_ours = isinstance(where, str) and where.startswith("toosure")
    return where if is_ours and (inspect.isclass(thing) or callable(thing)) else module.__name__


def heading_of(file: str) -> str:
    """Return the first sentence of a file's docstring without its full stop."""
    if file.count(".") < 2:
        return "In the package itself"
    first = (inspect.getdoc(import_module(file)) or file).split("\n\n")[0]
    sentence = re.split(r"(?<=[.:;])(?<!Eq\.)(?<!al\.) ", " ".join(first.split()))[0]
    return re.sub(r"(?<!al)[.:;]$", "", sentence)


def entry(name: str, thing: Any, depth: int = 3) -> list[str]:
    """Return one public name as a directive of Sphinx's Python domain, its docstring inside."""
    fence = "`" * (depth + 3)
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
        body = [*markdown_lines(own_docstring(thing)), "", *field_lines(thing), ""]
        for method_name, method in methods_of(thing):
            body += [*entry(method_name, method, depth - 1), ""]
        signature = signature_of(thing).removesuffix(" -> None")
        return [f"{fence}{{py:{kind}}} {name}{signature}", "", *body, fence]

    if callable(thing) and not is_type_alias(thing):
        kind = "function" if depth == 3 else "method"
        body = markdown_lines(inspect.getdoc(thing) or "")
        return [f"{fence}{{py:{kind}}} {name}{signature_of(thing)}", "", *body, fence]

    if isinstance(thing, property):
        body = markdown_lines(inspect.getdoc(thing) or "")
        return [f"{fence}{{py:property}} {name}", "", *body, fence]
    return [f"{fence}{{py:data}} {name}", "", shown_value(thing), fence]


def methods_of(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented methods and properties that a class of ours has written itself."""
    for name, member in vars(thing).items():
        function = getattr(member, "__func__", member)  # of a classmethod or staticmethod
        is_public = not name.startswith("_") or name in SPECIAL
        is_method = inspect.isfunction(function) or isinstance(member, property)
        if is_public and is_method and function.__doc__:
            yield name, function


def own_docstring(thing: type) -> str:
    """Return a class's docstring, but not the signature that a dataclass writes for itself."""
    text = inspect.getdoc(thing) or ""
    is_written = not (dataclasses.is_dataclass(thing) and text.startswith(f"{thing.__name__}("))
    return text if is_written else ""


def is_type_alias(thing: object) -> bool:
    """Say whether a name stands for a type, as `Literal["a", "b"]` does."""
    return not inspect.isroutine(thing) and hasattr(thing, "__origin__")


def signature_of(thing: Any) -> str:
    """Return a signature in one line, without the defaults that nobody can read."""
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r"<built-in function (\w+)>", r"\1", text).replace("<lambda>", "lambda")
    text = re.sub(r"<(?:function|class)[^<>]*>|<factory>|<[^<>]* at 0x[^<>]*>", "...", text)
    text = re.sub(r"\w+Path\('([^']*)'\)", r"'\1'", text)
    text = re.sub(r"(?<=: |> )'([\w.\[\], |]+)'", r"\1", text)  # a type that is written as text
    text = re.sub(r"\b(?:torch|collections|pathlib|typing|numpy)(?:\.\w+)*\.(\w+)", r"\1", text)
    text = re.sub(r"\btoosure(?:\.\w+)+", lambda match: public_path(match[0]), text)
    return re.sub(r"^\(self(?:, )?", "(", text).replace("\n", " ")


@cache
def public_paths() -> dict[str, str]:
    """Map where a class is defined to where users import it from; the shortest path wins."""
    paths: dict[str, str] = {}
    modules = [name for name in public_names() if ".integrations." not in name]  # frameworks
    for module in modules:
        for name in public_names()[module]:
            thing = getattr(import_module(module), name)
            if is_older_name(name, thing):
                continue
            place = place_of(thing, f"{module}.{name}")
            paths[place] = min(paths.get(place, f"{module}.{name}"), f"{module}.{name}", key=len)
    return paths


def place_of(thing: object, otherwise: str) -> str:
    """Return the module and name under which an object calls itself."""
    name = getattr(thing, "__qualname__", None)
    return f"{getattr(thing, '__module__', '')}.{name}" if name else otherwise


def public_path(place: str) -> str:
    """Return the path that users import, or the bare name of something that is not public."""
    return public_paths().get(place, place.rsplit(".", 1)[-1])


def shown_value(thing: object) -> str:
    """Return what a constant, a table of methods or the name of a type holds."""
    if isinstance(thing, Mapping):
        return "A table of: " + ", ".join(f"`{key}`" for key in thing) + "."
    if isinstance(thing, (list, tuple, set, frozenset)):
        return "Holds: " + ", ".join(f"`{value}`" for value in thing) + "."
    return f"`{str(thing).replace('typing.', '')}`"


def markdown_lines(docstring: str) -> list[str]:
    """Return a docstring as Markdown: its examples are fenced, its headings are none.

    >>> markdown_lines("Add.\\n\\n>>> 1 + 1\\n2")
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    lines: list[str] = []
    in_example = False
    for paragraph in re.split(r"\n\s*\n", textwrap.dedent(docstring)):
        is_example = paragraph.lstrip().startswith(">>> ")
        if is_example != in_example:
            lines += ["```pycon"] if is_example else ["```", ""]
        in_example = is_example
        text = textwrap.dedent(paragraph) if is_example else paragraph_of_prose(paragraph)
        lines += [*text.splitlines(), ""]

    while lines and not lines[-1]:
        lines.pop()
    return [*lines, "```"] if in_example else lines


def paragraph_of_prose(text: str) -> str:
    """Return a paragraph in which formula and reference stand on lines of their own."""
    text = re.sub(r"(?m)^#", r"\\#", text)
    text = re.sub(r"\n([-+*]) ", r"\n\\\1 ", text)  # a formula goes on: this is no list
    text = re.sub(r"(?<=\|)_(?=\w)", r"\\_", text)  # nor is the index of a norm emphasis
    return re.sub(r"(?m)\n(?=(?:Formula|References?)\b)", "\n\n", text)
