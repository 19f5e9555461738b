"""Inside the room, products and eigen-solver do not know each other."""

import ast
from pathlib import Path

import pytest

ROOM = Path(__file__).resolve().parents[2] / "src" / "toosure" / "curvature"
NAME = "toosure.curvature."
LEAF = {"result"}  # imports nothing of the room, so everyone may import it
ALLOWED = {"products": {"products"} | LEAF, "eigen": {"eigen"} | LEAF}


def imported_parts(file: Path) -> set[str]:
    """Return the packages and modules of the room that a file imports."""
    parts = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name.startswith(NAME):
                    parts.add(name.removeprefix(NAME).split(".")[0])
    return parts


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_are_independent(package):
    for file in sorted((ROOM / package).glob("*.py")):
        assert imported_parts(file) <= ALLOWED[package], file.name


def test_the_leaf_imports_nothing_of_the_room():
    assert imported_parts(ROOM / "result.py") == set()
