"""Options that take several values: `--seed 0 1 2` means `--seed 0 --seed 1 --seed 2`."""

from typing import Any

from typer.core import TyperCommand


class Several(TyperCommand):
    """A command whose repeatable options take all the values that follow them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeatable = {name for p in self.params if getattr(p, "multiple", False) for name in p.opts}
        return super().parse_args(ctx, spread(args, repeatable))


def spread(args: list[str], repeatable: set[str]) -> list[str]:
    """Name a repeatable option again before each further value.

    >>> spread(["--seed", "0", "1", "--out", "runs"], {"--seed"})
    ['--seed', '0', '--seed', '1', '--out', 'runs']
    """
    found: list[str] = []
    current, has_value = "", False
    for arg in args:
        name, equals, _ = arg.partition("=")
        if arg.startswith("--"):
            current, has_value = (name if name in repeatable else ""), bool(equals)
        elif current and has_value:
            found.append(current)
        else:
            has_value = True
        found.append(arg)
    return found
