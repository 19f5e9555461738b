"""Keyword arguments under their names of before, so that older scripts still run."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def renamed_arguments(
    **new_names: str,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Accept keyword arguments by their old names: `renamed_arguments(old="new")`.

    >>> @renamed_arguments(colour="color")
    ... def paint(color):
    ...     return color
    >>> paint(colour="red"), paint(color="blue")
    ('red', 'blue')
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(function)
        def call(*args: object, **kwargs: object) -> Result:
            current = {new_names.get(name, name): value for name, value in kwargs.items()}
            return cast(Callable[..., Result], function)(*args, **current)

        return cast(Callable[Arguments, Result], call)

    return decorate
