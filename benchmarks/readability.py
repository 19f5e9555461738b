"""Measure how the code reads: the shape of its bodies, and the path of one number.

    python benchmarks/readability.py            # both
    python benchmarks/readability.py --path     # every function on the path of val/ece

The shape: function bodies (docstring aside) of 12 or more lines without a blank or comment line,
arguments annotated exactly `Any`, assignments of a tuple to a tuple per thousand lines, bodies past
50 lines, files past 300. The path: distinct functions of toosure that are entered from `Watch.step`
to the written row, and from the row to the mark in a figure, where `val/ece` alone is measured.
"""

import argparse
import ast
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "toosure"
LONG_BODY = 12
AROUND = ("metrics/inputs.py", "figures/groups.py", "figures/style.py", "runs/files.py")


@dataclass
class Shape:
    """Counts over some files."""

    lines: int = 0
    long_files: int = 0
    bodies: int = 0  # of 12 lines or more
    solid: int = 0  # of these, without a blank or comment line
    past_50: int = 0
    arguments: int = 0  # annotated ones
    any_arguments: int = 0
    packed: int = 0

    @property
    def solid_share(self) -> float:
        return self.solid / max(1, self.bodies)

    @property
    def any_share(self) -> float:
        return self.any_arguments / max(1, self.arguments)

    @property
    def packed_per_thousand(self) -> float:
        return 1000 * self.packed / max(1, self.lines)


def shape_of(files: list[Path]) -> Shape:
    """Count over files."""
    shape = Shape()
    for file in files:
        text = file.read_text()
        lines = text.splitlines()
        shape.lines += len(lines)
        shape.long_files += len(lines) > 300
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count_function(shape, node, lines)
            elif isinstance(node, ast.Assign):
                values = node.value, node.targets[0]
                shape.packed += all(isinstance(value, ast.Tuple) for value in values)
    return shape


def count_function(
    shape: Shape, node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]
) -> None:
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    annotations = [a.annotation for a in arguments if a.annotation is not None]
    shape.arguments += len(annotations)
    shape.any_arguments += sum(ast.unparse(each) == "Any" for each in annotations)

    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body:
        return
    part = [line.strip() for line in lines[body[0].lineno - 1 : body[-1].end_lineno]]
    shape.past_50 += len(part) > 50
    if len(part) >= LONG_BODY:
        shape.bodies += 1
        shape.solid += not any(not line or line.startswith("#") for line in part)


def functions_entered(action: Callable[[], object]) -> list[tuple[str, str]]:
    """Return (file, function) of everything of toosure that an action enters, in order."""
    entered: dict[tuple[str, str], None] = {}

    def profile(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            name = code.co_qualname
            if not name.endswith(("<genexpr>", "<listcomp>", "<dictcomp>", "<lambda>")):
                entered[code.co_filename.removeprefix(f"{SOURCE}/"), name] = None

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(entered)


def path_of_ece() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the functions from `Watch.step` to the row, and from the row to the mark."""
    import plotly.graph_objects  # noqa: F401 (imports are not part of the path)
    import torch
    from torch import nn

    from toosure.figures import trajectory
    from toosure.quantities import QUANTITIES
    from toosure.runs import Run
    from toosure.watch import Watch

    for key in [key for key, q in QUANTITIES.items() if q.compute and key != "ece"]:
        del QUANTITIES[key]
    model = nn.Linear(4, 3)
    data = torch.randn(50, 4), torch.arange(50) % 3
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(
            model, nn.CrossEntropyLoss(), data, data, f"{folder}/run", measure=(), at=[0, 6, 7]
        )
        for _ in range(6):
            watch.step()
        to_row = functions_entered(watch.step)
        watch.close()
        to_mark = functions_entered(
            lambda: trajectory([Run(f"{folder}/run")], ["ece"], splits=["val"]).data[0].y
        )
    return to_row, to_mark


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", action="store_true", help="list the functions on the path")
    arguments = parser.parse_args()

    shape = shape_of(sorted(SOURCE.rglob("*.py")))
    print(f"{shape.lines:,} lines, {shape.long_files} files past 300", end=", ")
    print(f"{shape.past_50} bodies past 50")
    print(f"{100 * shape.solid_share:.1f} % of {shape.bodies} bodies of 12+ lines are solid")
    print(f"{100 * shape.any_share:.1f} % of {shape.arguments:,} annotated arguments are Any")
    print(f"{shape.packed_per_thousand:.1f} packed assignments per thousand lines")

    to_row, to_mark = path_of_ece()
    both = list(dict.fromkeys([*to_row, *to_mark]))
    print(f"val/ece: {len(to_row)} functions to the row, {len(to_mark)} to the mark;", end=" ")
    print(f"{len(both)} functions in {len({file for file, _ in both})} files")
    bare = [(file, name) for file, name in both if file not in AROUND]
    print(f"  without checks of inputs, names and axes: {len(bare)}", end=" ")
    print(f"in {len({file for file, _ in bare})} files")
    if arguments.path:
        for title, part in (("to the row", to_row), ("to the mark", to_mark)):
            print(f"\n{title}")
            for file, name in part:
                print(f"  {file:36} {name}")
