"""The first screen: which setting to take, how honest it is, what next; then all in one order."""

import math
import re
from collections.abc import Sequence
from html import escape

from toosure.figures.groups import settings_of
from toosure.figures.style import PALETTE
from toosure.page.data_sets import how_to_name
from toosure.page.decision import Decision, decide, title_of
from toosure.page.html import breakable, data_heading, prose
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.ranking import RankedSetting
from toosure.page.tables import Cell, Heading, HtmlCell, NumberCell, cell_with_spread, table
from toosure.quantities import described

BAR_WIDTH = 180  # units of the picture of a gap
BAR_HEIGHT = 20
MAX_CAUTIONS = 3  # about copies and repeats
MIN_REACH = 2.0  # points that the scale of the bars shows at least


def summary(page: PageRuns) -> str:
    """Return the decision and the ranking of all settings, for each data set."""
    count = f"{len(page.runs)} runs" if len(page.runs) > 1 else page.named[0][0]
    source = f"toosure · {escape(page.source)} · {escape(count)}"

    conclusion = f'<p class="conclusion">{prose(page.conclusion)}</p>' if page.conclusion else ""
    if len(page.by_data_set) == 1:
        decided = decision_and_ranking(page, "h1")
    else:
        hint = how_to_name(page.by_data_set)
        decided = f"<h1>{unbroken(title_of(page))}</h1>"
        decided += f'<p class="reason">{prose(hint)}</p>' if hint else ""
        for head, part in page.headed_parts:
            decided += data_heading(head) + decision_and_ranking(part, "h2")
    return (
        f'<header id="summary"><p class="source">{source}</p>{conclusion}'
        f'<div id="ranking">{decided}{cautions(page)}</div></header>'
    )


def cautions(page: PageRuns) -> str:
    """Return which runs do not count as seeds, the first ones; the others are under Origin."""
    if not page.cautions:
        return ""
    text = " ".join(page.cautions[:MAX_CAUTIONS])
    more = len(page.cautions) - MAX_CAUTIONS
    rest = f' <a href="#provenance">{more} more</a>.' if more > 0 else ""
    return f'<p class="reason"><strong>Not counted as seeds.</strong> {prose(text)}{rest}</p>'


def decision_and_ranking(page: PageRuns, heading: str) -> str:
    """Return the decision among the settings of one data set, and their ranking."""
    decision = decide(page)
    reason = f'<p class="reason">{prose(decision.reason)}</p>' if decision.reason else ""
    steps = "".join(f"<li>{prose(step)}</li>" for step in decision.steps) + warned(decision)
    following = f'<ul class="next" aria-label="what next">{steps}</ul>' if steps else ""
    weak = " faint" if decision.setting and decision.setting.is_weak else ""
    title = f'<span class="{decision.kind}{weak}">{unbroken(decision.title)}</span>'
    return f"<{heading}>{title}</{heading}>{reason}{following}{ranking(page, decision)}"


def warned(decision: Decision) -> str:
    """Return a line that leads to the warnings of the setting of a decision; empty without one.

    How a run ended is told by its verdict.
    """
    runs = decision.setting.group.runs if decision.setting else ()
    found = {text for run in runs for text in run.warnings if text != run.ending}
    if not found:
        return ""
    count = "a warning" if len(found) == 1 else f"{len(found)} warnings"
    return f'<li>It has <a href="#provenance">{count}</a>: read before you trust it.</li>'


def unbroken(sentence: str) -> str:
    """Return a headline: no hyphen ends a line, and names may break after a comma or colon."""
    text = prose(sentence).replace("-confident", "-&NoBreak;confident")
    return re.sub(r"([,:])(?=\S)(?!\d{3}\b)", r"\1<wbr>", text)


def ranking(page: PageRuns, decision: Decision) -> str:
    """Return every setting in order, with a bar for its gap, and a filter if there are many."""
    header: list[Heading] = [
        "setting",
        described("gap"),
        described("nll"),
        described("accuracy"),
        described("ece"),
        "verdict",
        "n",
    ]
    scale = scale_of(page.ranked_settings)
    rows = [row_of(page, setting, scale, decision) for setting in page.ranked_settings]
    attributes = [row_attributes(setting) for setting in page.ranked_settings]
    return table(header, rows, ("", "", "", "", "", "", ","), True, attributes)


def row_attributes(setting: RankedSetting) -> str:
    """Return the attributes of a row that the filter reads."""
    settings = settings_of(setting.group.runs[0].config)
    text = " ".join([setting.label, *(f"{key}={value}" for key, value in settings.items())])
    return f'data-label="{escape(setting.label)}" data-text="{escape(text)}"'


def row_of(
    page: PageRuns, setting: RankedSetting, scale: tuple[float, float], decision: Decision
) -> list[Cell]:
    """Return the row of a setting."""
    numbers: list[Cell] = [number_cell(setting, key) for key in ("nll", "accuracy", "ece")]
    weak = " faint" if setting.is_weak else ""
    verdict = setting.verdict
    sentence = f'<span class="{verdict.kind}{weak}">{prose(verdict.sentence)}</span>'
    bar = HtmlCell.of(gap_bar(setting, scale), verdict.gap)
    chosen = setting is decision.setting and len(page.distinct_groups) > 1
    name = name_cell(page, setting, chosen)
    return [name, bar, *numbers, HtmlCell.of(sentence, verdict.sentence), setting.n or None]


def name_cell(page: PageRuns, setting: RankedSetting, chosen: bool) -> HtmlCell:
    """Return the name of a setting with its colour, and how many seeds it has."""
    group = setting.group
    parts = ["<b>taken</b>"] if chosen else []
    parts += [f"{len(group.runs)} seeds"] if len(group.runs) > 1 else []
    parts += [f"{setting.left_out} left out"] if setting.left_out else []
    parts += ["repeat"] if group.repeats else []
    trained = all(run.training_only for run in group.runs)
    data = "test data" if setting.verdict.on_test else "training data"
    parts += [data] if trained else []
    parts += [] if setting.is_ranked or trained else ["not ranked"]
    note = f"<small>{', '.join(parts)}</small>" if parts else ""
    place = page.places[setting.label] % len(PALETTE)
    text = f'<i class="swatch c{place}"></i>{breakable(setting.label)}{note}'
    return HtmlCell.of(text, setting.label)


def number_cell(setting: RankedSetting, key: str) -> NumberCell:
    """Return a number of a setting, with its spread over seeds if there are several."""
    spread = setting.spreads.get(key) or None
    return cell_with_spread(setting.values.get(key), spread, described(key).form)


def scale_of(ranked_settings: Sequence[RankedSetting]) -> tuple[float, float]:
    """Return the smallest and the largest end of all bars, in points."""
    ends = [-MIN_REACH / 4, MIN_REACH]
    for setting in ranked_settings:
        ends += [setting.verdict.gap, *setting.verdict.ends]
    finite = [end for end in ends if math.isfinite(end)]
    return min(finite), max(finite)


def gap_bar(setting: RankedSetting, scale: tuple[float, float]) -> str:
    """Return a small picture: a bar from 0 to the gap, a whisker for its interval."""
    gap, half = setting.verdict.gap, setting.verdict.half_width
    if not math.isfinite(gap):
        return "–"
    low, high = scale

    def place(points: float) -> float:
        return round(4 + (BAR_WIDTH - 8) * (points - low) / (high - low), 1)

    start, end = sorted((place(0), place(gap)))
    width = max(0.5, round(end - start, 1))
    middle = BAR_HEIGHT / 2
    weak = " faint" if setting.is_weak else ""
    kind = setting.verdict.kind if setting.verdict.kind in ("over", "under") else "chance"
    whisker = ""
    words = f"gap {printed(gap, '+.1f')} points"
    if math.isfinite(half):
        lowest, highest = setting.verdict.ends
        left, right = place(lowest), place(highest)
        whisker = (
            f'<path d="M{left},{middle}H{right}M{left},{middle - 4}v8M{right},{middle - 4}v8"/>'
        )
        words += f", interval {printed(lowest, '+.1f')} to {printed(highest, '+.1f')}"
    return (
        f'<svg class="gap {kind}{weak}" viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT}" role="img" '
        f'aria-label="{escape(words)}"><title>{escape(words)}</title>'
        f'<rect x="{start}" y="{middle - 5}" width="{width}" height="10"/>'
        f'<path class="zero" d="M{place(0)},0V{BAR_HEIGHT}"/>{whisker}</svg>'
    )
