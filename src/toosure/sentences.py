"""Pieces of sentences that errors, tables and pages share."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.5) -> str:
    """Return the end of an error: the known name nearest to a wrong one, or `otherwise`.

    >>> f"there is no loss 'Focl'{did_you_mean('Focl', ['focal', 'ce'])}"
    "there is no loss 'Focl'; did you mean 'focal'?"
    >>> did_you_mean("xyz", ["focal", "ce"], otherwise=".")
    '.'
    """
    spellings = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), list(spellings), n=1, cutoff=cutoff)
    return f"; did you mean {spellings[close[0]]!r}?" if close else otherwise


def every_steps(count: int) -> str:
    """Say how often something is done.

    >>> every_steps(1), every_steps(2000)
    ('at every step', 'every 2,000 steps')
    """
    return "at every step" if count == 1 else f"every {count:,} steps"


def listed(names: Iterable[str], show: int = 5) -> str:
    """Return names after each other; of many the first, and how many more there are.

    >>> listed("abcde", 3), listed([])
    ('a, b, c and 2 more', 'nothing')
    >>> listed(["sgd, batch 64", "sam, batch 64"])
    'sgd, batch 64; sam, batch 64'
    """
    names = list(names)
    between = "; " if any("," in name for name in names) else ", "
    rest = f" and {len(names) - show} more" if len(names) > show else ""
    return between.join(names[:show]) + rest if names else "nothing"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's name if it has none.

    >>> first_line(ValueError("too small\\nat least 1")), first_line(KeyboardInterrupt())
    ('too small', 'KeyboardInterrupt')
    """
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def size_text(count: int) -> str:
    """Return a number of bytes as people write it.

    >>> size_text(300), size_text(11_600_000), size_text(155_000_000_000)
    ('300 bytes', '11.6 MB', '155 GB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.{1 if count < 100 * size else 0}f} {unit}"
    return f"{count} bytes"
