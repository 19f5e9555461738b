"""Run what stands on a page of the docs, from top to bottom, as a reader would.

- A `python` block is executed; names live on to the next one.
- Each line of a `sh` block that begins with `toosure` is run as a command; `# exit code 1` at its
  end is what it must end with. Lines of `pip install` and the like are only read.
- A `text` block is what the block before it must have printed. `...` stands for any lines, and a
  number may differ by a few per cent: another processor may round another way.
- `<!-- setup ... -->` is Python that a reader has already: a model, a loader.
- `<!-- not run: why -->` just above a block leaves it out.
"""

import contextlib
import io
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

from toosure.cli import app

BLOCK = re.compile(
    r"<!-- setup\n(?P<setup>.*?)-->"
    r"|<!-- not run: (?P<why>[^>]+) -->\s*```\w+\n.*?```"
    r"|^```(?P<kind>python|sh|text)\n(?P<body>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
NOT_OURS = ("pip install", "make ", "ssh ", "torchrun ", "git ", "tensorboard ", "cd ", "python ")
NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?")


@dataclass
class Page:
    """One page, the names that its blocks have defined, and what was printed last."""

    file: Path
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    printed: str = ""
    commands: int = 0
    snippets: int = 0

    def run(self) -> None:
        """Run every block of the page in the present folder."""
        for block in BLOCK.finditer(self.file.read_text(encoding="utf-8")):
            kind = "python" if block["setup"] else block["kind"]
            body = block["setup"] or block["body"]
            if kind == "python":
                self.snippets += 1
                self.execute(body)
            elif kind == "sh":
                self.run_commands(body)
            elif kind == "text" and self.printed:
                self.compare(body)

    def execute(self, code: str) -> None:
        """Execute Python, and keep what it prints."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(self.file), "exec"), self.names)
        self.printed = out.getvalue()

    def run_commands(self, body: str) -> None:
        """Run the lines of a shell that are commands of ours."""
        for line in body.replace("\\\n", " ").splitlines():
            code = re.search(r"# exit code (\d)", line)
            words = shlex.split(line, comments=True)
            if not words or line.startswith(NOT_OURS):
                continue

            assert words[0] == "toosure", f"{self.file.name}: unknown command: {line}"
            done = CliRunner().invoke(app, words[1:])
            expected = int(code[1]) if code else 0
            assert done.exit_code == expected, f"{self.file.name}: {line}: {done.output}"
            self.printed = done.stdout
            self.commands += 1

    def compare(self, shown: str) -> None:
        """Compare what the page shows with what was printed."""
        problem = difference(shown, self.printed)
        assert not problem, f"{self.file.name}: {problem}"


def difference(shown: str, printed: str) -> str:
    """Return in what a text differs from what was printed, or nothing.

    >>> difference("ECE 0.101\\n...", "ECE 0.102\\nmore\\nand more")
    ''
    >>> difference("ECE 0.101", "ECE 0.202")
    "shows 'ECE 0.101', but 'ECE 0.202' was printed"
    """
    left = [line.rstrip() for line in shown.strip().splitlines()]
    right = [line.rstrip() for line in printed.strip().splitlines()]
    for number, line in enumerate(left):
        if line == "...":
            return ""
        found = right[number] if number < len(right) else ""
        if not same_line(line, found):
            return f"shows {line!r}, but {found!r} was printed"
    return "" if len(left) == len(right) else f"leaves out {right[len(left)]!r}"


def same_line(left: str, right: str) -> bool:
    """Say whether two lines have the same words, and numbers that are near to each other."""
    words = [" ".join(NUMBER.sub("#", line).split()) for line in (left, right)]
    numbers = [[as_float(text) for text in NUMBER.findall(line)] for line in (left, right)]
    near = (abs(a - b) <= 0.03 + 0.05 * abs(a) for a, b in zip(*numbers, strict=False))
    return words[0] == words[1] and all(near)


def as_float(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))
