"""Commits as text, for the tables of recipes."""

from collections.abc import Iterable


def short_commit(commit: str | None) -> str:
    """Return the first digits of a commit, with its final "+" if files differed from it.

    >>> short_commit("0123456789abcdef+"), short_commit(None)
    ('0123456789ab+', 'no commit')
    """
    if not commit:
        return "no commit"
    return commit[:12] + "+" * commit.endswith("+")


def commits_text(commits: Iterable[str | None]) -> str:
    """Return the commits of several runs as text, each once.

    >>> commits_text(["fedcba9876543210", "0123456789abcdef", "0123456789abcdef"])
    '0123456789ab, fedcba987654'
    """
    return ", ".join(sorted({short_commit(commit) for commit in commits}))
