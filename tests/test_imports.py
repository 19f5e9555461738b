"""Imports go one way through the rooms, and `import toosure` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "toosure"
LAYERS = [
    {
        "batches",
        "binary",
        "chance",
        "eval_mode",
        "finite",
        "metrics",
        "processes",
        "quantiles",
        "quantities",
        "sentences",
        "verdicts",
    },
    {"curvature"},
    {"margins"},
    {"losses", "data", "models"},
    {"optim", "posthoc"},
    {"objectives", "ensembles"},
    {"words", "config", "runs", "predictions", "shifts"},
    {"watch", "evaluate", "recalibration", "sklearn", "control"},
    {"train"},
    {"sweep", "figures", "page", "integrations", "recipes", "demo"},
    {"cli", "__main__"},
]
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(file: Path) -> set[str]:
    """The rooms a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}: relative import; write toosure.room"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {n.split(".")[1] for n in names if n.startswith("toosure.") and n.count(".")}
    return found & RANK.keys()


FILES = sorted(f for f in SOURCE.rglob("*.py") if f.parent != SOURCE or f.name != "__init__.py")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_point_one_way(file):
    room = room_of(file)
    assert room in RANK, f"{room} is a new room: give it a place in LAYERS"
    wrong = {r for r in imported_rooms(file) if r != room and RANK[r] > RANK[room]}
    assert not wrong, f"{room} may not import {sorted(wrong)}"


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_import_toosure_is_light():
    heavy = {"torch", "plotly", "ray", "lightning", "torchmetrics", "sklearn", "rich", "typer"}
    assert not heavy & loaded_after("import toosure")


def test_metrics_do_not_load_torchmetrics():
    assert "torchmetrics" not in loaded_after("import toosure.metrics")


def test_evaluating_does_not_load_scipy():
    """It takes a second of the two and a half that `toosure evaluate` may take."""
    assert "scipy" not in loaded_after("import toosure.evaluate, toosure.predictions")
