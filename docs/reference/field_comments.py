"""What the source says of the fields of a class: the comment behind each of them."""

import ast
import dataclasses
import inspect
import re
import textwrap


def field_lines(thing: type) -> list[str]:
    """Return the fields of a dataclass or named tuple that have a comment, as a list in Markdown.

    >>> field_lines(Example)
    ['- `n`: how many rows']
    """
    if not (dataclasses.is_dataclass(thing) or hasattr(thing, "_fields")):
        return []
    lines = textwrap.dedent(inspect.getsource(thing)).splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)

    found = []
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
            name, (_, mark, comment) = node.target.id, rest.partition("# ")
            if mark and not name.startswith("_"):
                found.append(f"- `{name}`: {escaped(comment)}")
    return found


def escaped(comment: str) -> str:
    """Return a comment in which no sign outside code is one of Markdown's."""
    pieces = re.split(r"(`[^`]*`)", comment.strip())
    return "".join(p if p.startswith("`") else re.sub(r"([*<\[])", r"\\\1", p) for p in pieces)


@dataclasses.dataclass
class Example:
    """A class for the example above."""

    n: int  # how many rows
    name: str = ""
