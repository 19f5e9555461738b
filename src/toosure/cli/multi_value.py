"""Options that take several values: `--seed 0 1 2` means `--seed 0 --seed 1 --seed 2`."""

from typing import Any

from typer.core import TyperCommand


class MultiValueCommand(TyperCommand):
    """A command with repeatable options that take all values after them."""

    # The context is click's or typer's own class, depending on typer's version.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeatable = {name for p in self.params if getattr(p, "multiple", False) for name in p.opts}
        return super().parse_args(ctx, repeat_options(args, repeatable))


def repeat_options(args: list[str], repeatable: set[str]) -> list[str]:
    """Name a repeatable option again before each further value.

    >>> repeat_options(["--seed", "0", "1", "--out", "runs"], {"--seed"})
    ['--seed', '0', '--seed', '1', '--out', 'runs']
    """
    repeated: list[str] = []
    option = ""  # the repeatable option that values belong to
    has_value = False
    for arg in args:
        name, equals, _ = arg.partition("=")
        if arg.startswith("--"):
            option = name if name in repeatable else ""
            has_value = bool(equals)
        elif option and has_value:
            repeated.append(option)  # a second value: name the option once more
        else:
            has_value = True

        repeated.append(arg)
    return repeated
