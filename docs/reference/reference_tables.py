"""The tables of the reference as Markdown: methods, keys, the command line, the examples."""

import ast
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from api_pages import write_if_changed

from toosure.cli import app
from toosure.quantities import QUANTITIES, Quantity, evaluation_groups, markdown
from toosure.words import TABLES, Method, methods

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KIND_OPTIONS = {"calibrator": "`toosure calibrate --method`", "average": "`--average`"}


def write_tables(folder: Path) -> None:
    """Write them into a folder, for pages that include them."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "methods": methods_text(),
        "keys": keys_text(),
        "commands": commands_text(),
        "examples": examples_text(),
    }
    for name, text in tables.items():
        write_if_changed(folder / f"{name}.md", text)


def cell(text: str) -> str:
    """Return text as it may stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def prose_with_code(text: str) -> str:
    """Return a help text in which an option or a word in quotes is code."""
    pieces = re.split(r"(`[^`]*`)", text)
    mark = re.compile(r"""(?<![\w-])(--[a-z][\w-]*)|(?<!\w)'([^']+)'|"([^"]+)\"""")
    for place in range(0, len(pieces), 2):
        pieces[place] = mark.sub(lambda match: f"`{match[match.lastindex]}`", pieces[place])
    return "".join(pieces)


def methods_text() -> str:
    """Return every word that the commands understand, one table per kind."""
    lines: list[str] = []
    for kind in TABLES:
        option = KIND_OPTIONS.get(kind, f"`--{kind}`")
        lines += [f"## {kind.capitalize()}", "", f"Given to {option}.", ""]
        lines += ["| word | what it does | settings | paper |", "|---|---|---|---|"]
        lines += [method_row(method) for method in methods(kind)]
        lines.append("")
    return "\n".join(lines)


def method_row(method: Method) -> str:
    """Return one method as a row: its name, summary, settings and reference."""
    settings = ", ".join(f"`{setting}`" for setting in method.settings.values())
    if method.passes_to:
        settings += f"; those of `{method.passes_to}`"
    cells = [f"`{method.name}`", method.summary, settings, method.reference]
    return "| " + " | ".join(map(cell, cells)) + " |"


def keys_text() -> str:
    """Return the keys of a row, and the numbers of an evaluation."""
    lines = ["## Keys of a row", "", *markdown().splitlines(), ""]
    lines += ["## Numbers of an evaluation", ""]
    lines.append("`toosure evaluate --json` and `evaluate(...).metrics` have these keys.")
    for group, keys in evaluation_groups().items():
        lines += ["", f"**{group}**", "", "| key | name | | better |", "|---|---|---|---|"]
        lines += [quantity_row(QUANTITIES[key]) for key in keys]
    return "\n".join(lines) + "\n"


def quantity_row(quantity: Quantity) -> str:
    """Return one quantity as a row."""
    cells = [f"`{quantity.key}`", quantity.name, quantity.says, quantity.better]
    return "| " + " | ".join(map(cell, cells)) + " |"


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name: `toosure train`, `toosure runs export`."""
    from typer.main import get_command

    yield from below("toosure", get_command(app))


def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command, or a group of them and then each of its members."""
    if name != "toosure":
        yield name, command
    members = getattr(command, "commands", {})
    for word in command.list_commands(None) if members else ():
        yield from below(f"{name} {word}", members[word])


def commands_text() -> str:
    """Return every command with its arguments and options."""
    lines: list[str] = []
    for name, command in commands():
        lines += [f"## `{name}`", "", prose(command.help or ""), ""]
        rows = [parameter_row(p) for p in command.params if not getattr(p, "hidden", False)]
        if rows:
            lines += ["| argument or option | | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def prose(text: str) -> str:
    """Return a help text without the marks that only a terminal understands."""
    text = prose_with_code(text.replace("\b", "").replace("\f", ""))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def parameter_row(parameter: Any) -> str:
    """Return an argument or an option as a row of the table of its command."""
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [parameter.name.upper()]
    written = ", ".join(f"`{name}`" for name in names)

    default = "(needed)" if parameter.required else default_of(parameter)
    says = f"{prose_with_code(getattr(parameter, 'help', '') or '')} {choices_of(parameter)}"
    return f"| {written} | {cell(says)} | {cell(default)} |"


def default_of(parameter: Any) -> str:
    """Return the default of an option; of a switch only where it is on."""
    value = parameter.default
    if isinstance(value, bool):
        return f"`{parameter.opts[0]}`" if value else ""
    if value in (None, "", [], ()) or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def choices_of(parameter: Any) -> str:
    """Return the values that an option takes, where they are few: "One of `left`, `right`."."""
    described = getattr(parameter, "type_descriptor", None)
    annotation = getattr(described, "annotation", None)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        values = [choice.value for choice in annotation]
    else:
        values = list(get_args(annotation)) if get_origin(annotation) is Literal else []
    return f"One of {', '.join(f'`{value}`' for value in values)}." if values else ""


def examples_text() -> str:
    """Return every script of examples/ under its name, what it shows first."""
    lines: list[str] = []
    for file in sorted(EXAMPLES.glob("*.py")):
        code = file.read_text(encoding="utf-8")
        summary = ast.get_docstring(ast.parse(code)) or ""
        rest = code.split('"""', 2)[2].strip()
        summary = re.sub(r"\btorchrun --.*?(?=\.?$)", r"`\g<0>`", summary)
        lines += [f"## {file.stem}", "", f"`examples/{file.name}`: {summary}", ""]
        lines += ["```python", rest, "```", ""]
    return "\n".join(lines)
