"""The notebooks are Python that parses, imports what exists, and can be read as text.

`make docs-notebooks` executes them; here nothing is trained.
"""

import ast
from importlib import import_module
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.py"))
NOT_IN_DEV = {"IPython"}  # comes with the extra docs


def test_the_four_are_there():
    assert [notebook.stem[:1] for notebook in NOTEBOOKS] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_parses_and_imports(notebook):
    text = notebook.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            assert all(import_module(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] not in NOT_IN_DEV:
            module = import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), node.module


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_cells_of_text_and_code(notebook):
    header, *cells = notebook.read_text(encoding="utf-8").split("\n# %%")
    assert "format_name: percent" in header
    texts = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert texts[0].splitlines()[1].startswith("# # ")  # its title
    assert len(texts) >= 3 and len(cells) - len(texts) >= 3
    for text in texts:
        assert all(line.startswith("#") for line in text.splitlines()[1:] if line.strip())
