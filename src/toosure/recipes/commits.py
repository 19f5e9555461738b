"""How a commit is printed in the tables of recipes."""


def short_commit(commit: str | None) -> str:
    """Return the first digits of a commit; a final "+" (files differed from it) is kept.

    >>> short_commit("0123456789abcdef+"), short_commit(None)
    ('0123456789ab+', 'no commit')
    """
    if not commit:
        return "no commit"
    return commit[:12] + "+" * commit.endswith("+")
