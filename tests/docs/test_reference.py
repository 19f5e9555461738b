"""Every public name is documented, and every name that the pages mention exists.

The pages are made without Sphinx, so all of this is checked every day.
"""

import ast
import inspect
import re
import types
from importlib import import_module
from pathlib import Path

import api_pages
import pytest
import reference_tables

from toosure.quantities import QUANTITIES
from toosure.words import TABLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("[!r]*/*.md")),
]
SCRIPTS = [
    *sorted((ROOT / "examples").glob("*.py")),
    *sorted((ROOT / "docs/notebooks").glob("*.py")),
]
MADE_UP = {"toosure.metrics.unsure"}  # what architecture.md adds as an example
NAMES = api_pages.public_names()
INSTALLED = [module for module in NAMES if "integrations." not in module]


@pytest.mark.parametrize("module", INSTALLED)
def test_every_public_name_is_on_its_page_with_what_it_is_for(module):
    page = api_pages.page_of(module)
    documented = re.findall(r"(?m)^`{6}\{py:(?:class|function|data|exception)\} (\w+)", page)
    assert sorted(documented) == sorted(NAMES[module])

    for name in NAMES[module]:
        thing = getattr(import_module(module), name)
        if inspect.isclass(thing):
            assert api_pages.own_docstring(thing), f"{module}.{name} has no docstring"
        elif inspect.isroutine(thing):
            assert inspect.getdoc(thing), f"{module}.{name} has no docstring"


def test_a_name_without_a_docstring_would_be_found(monkeypatch):
    made_up = types.ModuleType("made_up", "A module.")
    exec("def nothing(): ...", made_up.__dict__)
    made_up.nothing.__module__ = "made_up"
    monkeypatch.setitem(api_pages.public_names(), "made_up", ("nothing", "missing"))
    monkeypatch.setattr(api_pages, "import_module", lambda name: made_up)
    with pytest.raises(AttributeError, match="missing"):
        api_pages.page_of("made_up")
    assert inspect.getdoc(made_up.nothing) is None


def test_a_page_begins_with_what_its_module_is_for():
    page = api_pages.page_of("toosure.evaluate")
    assert page.index("{py:function} evaluate(") < page.index("{py:class} ClassGap(")
    assert "- `excess`: its own part: the gap minus the gap of all rows" in page


def test_an_older_name_leads_to_the_new_one(monkeypatch):
    made_up = types.ModuleType("made_up", "A module.")
    exec("class New: ...\nOld = New", made_up.__dict__)
    made_up.New.__module__ = "made_up"
    monkeypatch.setitem(api_pages.public_names(), "made_up", ("New", "Old"))
    monkeypatch.setattr(api_pages, "import_module", lambda name: made_up)
    assert "An older name of `New`." in api_pages.page_of("made_up")


def test_a_signature_names_the_public_path_of_a_class():
    assert "runtime: toosure.train.Runtime | None" in api_pages.page_of("toosure.train")


def test_a_page_says_which_extra_is_missing(monkeypatch):
    def without(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(api_pages, "import_module", without)
    page = api_pages.page_of("toosure.integrations.wandb")
    assert "No module named" in page


def imports_in(code):
    """Yield (module, name) of every import from toosure in a piece of code."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toosure"):
            yield from ((node.module, alias.name) for alias in node.names)


def code_of(page):
    """Yield the snippets of a page that are whole; some show a line with `...` in it."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        try:
            ast.parse(block)
        except SyntaxError:
            yield "\n".join(re.findall(r"(?m)^from toosure[\w.]* import [\w, ]+", block))
        else:
            yield block


def test_what_pages_and_examples_import_is_documented():
    unknown = []
    for file in [*PAGES, *SCRIPTS]:
        snippets = [file.read_text()] if file.suffix == ".py" else code_of(file)
        for module, name in (pair for code in snippets for pair in imports_in(code)):
            is_module = f"{module}.{name}" in NAMES or any(
                each.startswith(f"{module}.{name}.") for each in NAMES
            )
            if name not in NAMES.get(module, ()) and not is_module:
                unknown.append(f"{file.name}: from {module} import {name}")
    assert not unknown, "not public, or not documented: see docs/reference/api_pages.py"


def exists(path):
    """Say whether a dotted path names a module of toosure or something in one."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:cut]))
        except ImportError as error:
            if error.name and not error.name.startswith("toosure"):
                return True  # an extra that is not installed
            continue
        for part in parts[cut:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


def test_every_dotted_name_on_a_page_exists():
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for path in set(re.findall(r"`(toosure(?:\.[A-Za-z_]\w*)+)", text)):
            if path not in MADE_UP and not exists(path):
                missing.append(f"{page.name}: {path}")
    assert not missing
    assert not exists("toosure.metrics.no_such_metric") and exists("toosure.metrics.ece")


def test_every_method_key_and_command_is_in_the_reference():
    methods = reference_tables.methods_text()
    for kind in TABLES:
        section = methods.split(f"## {kind.capitalize()}\n")[1].split("\n## ")[0]
        assert re.findall(r"(?m)^\| `([^`]+)` \|", section) == list(TABLES[kind])

    keys = reference_tables.keys_text()
    for key, quantity in QUANTITIES.items():
        in_a_table = quantity.group or quantity.splits or quantity.cost not in ("none", "file")
        assert not in_a_table or f"| `{key.strip()}" in keys or quantity.cost == "none", key

    commands = reference_tables.commands_text()
    names = [name for name, _ in reference_tables.commands()]
    assert re.findall(r"(?m)^## `(.+)`$", commands) == names
    assert {"toosure evaluate", "toosure train", "toosure runs export"} <= set(names)
    assert "| `--fail-if` |" in commands and "| `FILES` |" in commands


def test_defaults_and_choices_of_options_are_in_the_reference():
    commands = reference_tables.commands_text()
    assert "| Seed of the bootstrap. | `0` |" in commands
    assert "One of `tensorboard`, `wandb`, `mlflow`, `parquet`, `csv`." in commands
    assert (
        "| `--prune`, `--no-prune` | With one goal: stop runs that fall behind. | `--prune` |"
        in (commands)
    )


def test_every_option_is_on_a_page_that_people_wrote():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    written = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))
    unknown = [
        f"{name} {parameter.opts[0]}"
        for name, command in reference_tables.commands()
        for parameter in command.params
        if parameter.param_type_name == "option"
        and written.isdisjoint([*parameter.opts, *parameter.secondary_opts])
    ]
    assert not unknown


def test_every_option_says_what_it_is_for():
    silent = [
        f"{name} {parameter.name}"
        for name, command in reference_tables.commands()
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]
    assert not silent


def test_docstrings_become_markdown():
    lines = api_pages.markdown_lines("Add.\nReference: me\n\n# of rows\n\n>>> 1 + 1\n2")
    assert lines == [
        *("Add.", "", "Reference: me", "", "\\# of rows", ""),
        *("```pycon", ">>> 1 + 1", "2", "", "```"),
    ] or lines[-2:] == ["2", "```"]
    assert lines[2] == "Reference: me" and lines[4] == "\\# of rows"


def test_examples_are_shown_whole():
    text = reference_tables.examples_text()
    for file in (ROOT / "examples").glob("*.py"):
        assert f"## {file.stem}\n" in text
        assert file.read_text().rstrip().splitlines()[-1] in text
