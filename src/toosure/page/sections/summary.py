"""The head of the page: the verdict on all runs, and a sentence on each."""

from html import escape

from toosure.page.html import prose
from toosure.page.page_runs import PageRuns
from toosure.page.run_verdict import headline, judge

MAX_UNFOLDED = 12  # verdicts that need no folding


def summary(page: PageRuns) -> str:
    """Return the verdict on all runs and a sentence on each."""
    verdicts = [(name, judge(run)) for name, run in page.named]
    kind, sentence = headline([verdict for _, verdict in verdicts])
    count = f"{len(verdicts)} runs" if len(verdicts) > 1 else verdicts[0][0]

    items = "".join(
        f'<li><span class="who">{escape(name)}</span> '
        f'<span class="{verdict.kind}">{prose(verdict.sentence)}.</span></li>'
        for name, verdict in verdicts
    )
    listed = f'<ul class="verdicts">{items}</ul>' if len(verdicts) > 1 else ""
    if len(verdicts) > MAX_UNFOLDED:
        listed = f"<details><summary>the verdict on each run</summary>{listed}</details>"

    source = f"toosure · {escape(page.source)} · {escape(count)}"
    return (
        f'<header id="summary"><p class="source">{source}</p>'
        f'<h1><span class="{kind}">{unbroken(sentence)}</span></h1>{listed}</header>'
    )


def unbroken(sentence: str) -> str:
    """Return a headline whose hyphens do not end a line."""
    return prose(sentence).replace("-confident", "-&NoBreak;confident")
