"""The report in a real browser: it draws, sorts, slides, zooms together, and fits a phone."""

from itertools import groupby

import numpy as np
import pytest
from made_runs import HOSTILE

from toosure.figures import bins_of, confidence_histogram, margin_histogram, reliability_diagram
from toosure.page.report import report
from toosure.runs import Run
from waiting import wait_until

ROLES = ("reliability", "confidence", "margin")

pytestmark = pytest.mark.xdist_group("browser")  # workers of pytest share the browser


@pytest.fixture(scope="module")
def address(runs_folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report(runs_folder), encoding="utf-8")
    return path.as_uri()


def plot(role):
    return f"document.querySelector('[data-role={role}]')"


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_error_and_no_sideways_scroll(browser, visit, ask, address, width, scheme):
    visit(address, width, scheme)
    browser.execute_script("toosure.drawAll()")
    assert browser.get_log("browser") == []
    assert ask("document.querySelectorAll('.plot > svg.chart').length") >= 10
    assert ask("document.documentElement.scrollWidth") <= width
    fits = "Math.abs(p.chart.width - p.offsetWidth) <= 1"  # a resize is drawn a moment later
    wait_until(lambda: ask(f"[...document.querySelectorAll('.plot')].every(p => {fits})"))
    inside = (
        "[...document.querySelectorAll('.plot')].every(p => [...p.querySelectorAll('svg text')]"
        ".every(t => { const [a, b] = [t, p].map(e => e.getBoundingClientRect());"
        " return a.left >= b.left - 1 && a.right <= b.right + 1 && a.bottom <= b.bottom + 1; }))"
    )
    assert ask(inside)  # no label is cut


def test_the_first_screen_answers_which_how_honest_and_what_next(browser, visit, ask, address):
    visit(address, 1400)
    ends = ask(
        "['h1', '.next', '#ranking tbody tr'].map(s => document.querySelector(s)"
        ".getBoundingClientRect().bottom)"
    )
    assert max(ends) < 900
    sentences = ask("['h1', '.next'].map(s => document.querySelector(s).textContent)")
    assert "over-" in sentences[0] and sentences[1]


def test_nothing_is_loaded_and_no_name_becomes_code(browser, visit, ask, address):
    visit(address)
    found = ask("performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in found if not name.startswith(("data:", "blob:"))] == []
    chips = ask("[...document.querySelectorAll('.chip')].map(c => c.textContent)")
    assert chips.count(HOSTILE) == 1
    browser.execute_script(f"toosure.drawAll(); toosure.pointAt(30, {plot('ece')})")
    assert HOSTILE in ask(f"{plot('ece')}.querySelector('.reading').textContent")


def test_colours_follow_the_scheme_and_paper(browser, visit, ask, address):
    colour = f"{plot('ece')}.querySelector('g:nth-of-type(2)').getAttribute('fill')"
    visit(address, scheme="light")
    browser.execute_script("toosure.drawAll()")
    light = ask(colour)
    visit(address, scheme="dark")
    browser.execute_script("toosure.drawAll()")
    dark = ask(colour)
    assert dark != light
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert ask(colour) == light
    browser.execute_script("window.dispatchEvent(new Event('afterprint')); toosure.drawAll()")
    assert ask(colour) == dark


def test_a_press_on_a_heading_sorts(browser, visit, ask, address):
    visit(address)
    cells = "[...document.querySelectorAll('#comparison td:nth-child(4)')]"
    press = "document.querySelector('#comparison th:nth-child(4) button').click()"
    order = "document.querySelector('#comparison th:nth-child(4)').getAttribute('aria-sort')"
    browser.execute_script(press)
    wait_until(lambda: ask(order) == "descending")
    down = ask(f"{cells}.map(c => +c.dataset.value)")
    assert down == sorted(down, reverse=True) and len(down) == 4
    browser.execute_script(press)
    wait_until(lambda: ask(order) == "ascending")
    assert ask(f"{cells}.map(c => +c.dataset.value)") == sorted(down)


def test_a_phone_shows_every_column_in_a_box_that_scrolls(browser, visit, ask, address):
    visit(address, 390)
    box = "document.querySelector('#comparison .scroll')"
    assert ask(f"[...{box}.querySelectorAll('th')].every(h => h.offsetWidth > 0)")
    assert ask(f"{box}.scrollWidth > {box}.clientWidth")
    browser.execute_script(f"{box}.scrollLeft = 1000")
    last, name = (f"{box}.querySelector('th:{which}-child')" for which in ("last", "first"))
    assert ask(f"{last}.getBoundingClientRect().right") <= 390
    assert ask(f"{name}.getBoundingClientRect().left") >= 0  # the run's name stays in sight


def test_a_table_that_goes_on_says_so_and_keeps_its_names(browser, visit, ask, address):
    box = "document.querySelector('#comparison .scroll')"
    visit(address, 700)
    assert ask(f"{box}.scrollWidth > {box}.clientWidth")
    assert "gradient" in ask(f"getComputedStyle({box}).backgroundImage")
    browser.execute_script(f"{box}.scrollLeft = 1000")
    assert ask(f"{box}.querySelector('td').getBoundingClientRect().left") >= 0


def slide_to(browser, place):
    browser.execute_script(
        "const s = document.getElementById('moment-step'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        place,
    )


def shown(browser, ask, role):
    browser.execute_script(f"toosure.draw({plot(role)})")
    return ask(f"{plot(role)}.chart.data.map(t => [t.x, t.y].map(v => Array.from(v)))")


def choose_run(browser, name):
    """Choose a run of the slider by its name."""
    browser.execute_script(
        "const s = document.getElementById('moment-run'); s.value = [...s.options].find(o => "
        "o.textContent === arguments[0]).value; s.dispatchEvent(new Event('change'))",
        name,
    )


FIRST = "sgd:lr=0.1,momentum=0.9, seed 0"


def test_slider_moves_the_three_figures(browser, visit, ask, address, runs_folder):
    visit(address)
    choose_run(browser, FIRST)
    run = Run(runs_folder / "a0")
    before = [shown(browser, ask, role) for role in ROLES]
    slide_to(browser, 1)
    assert ask("document.getElementById('moment-said').textContent") == f"step {run.snapshots[1]}"
    after = [shown(browser, ask, role) for role in ROLES]
    assert all(a != b for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("place", [0, 3])
def test_slider_shows_what_python_draws(browser, visit, ask, address, runs_folder, place):
    visit(address)
    choose_run(browser, FIRST)
    slide_to(browser, place)
    run = Run(runs_folder / "a0")
    arrays = run.snapshot(run.snapshots[place])
    bins = bins_of(arrays, "val")
    histogram = margin_histogram(arrays["val_margin_edges"], arrays["val_margin_counts"])
    drawings = (reliability_diagram(bins), confidence_histogram(bins), histogram)
    for role, drawing in zip(ROLES, drawings, strict=True):
        found = [
            pair for pair in shown(browser, ask, role) if pair[0]
        ]  # no side is empty in Python
        assert len(found) == len(drawing.data)
        for (x, y), trace in zip(found, drawing.data, strict=True):
            np.testing.assert_allclose(x, trace.x, atol=0.02)
            np.testing.assert_allclose(y, trace.y, atol=0.02)
    whiskers = ask(
        f"{plot('reliability')}.chart.data.slice(1).map(t => Array.from(t.error_y.array))"
        ".filter(a => a.length)"
    )
    drawn = [trace.error_y.array for trace in drawings[0].data[1:]]
    for ours, theirs in zip(whiskers, drawn, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def drawn(browser, ask, role="ece"):
    """The lines in a panel: group, split and number of points."""
    browser.execute_script("toosure.drawAll()")
    lines = f"{plot(role)}.chart.data.filter(t => !t.fill)"
    return ask(f"{lines}.map(t => [t.group, t.split, t.x.length])")


def press(browser, selector):
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_chips_choose_runs_and_buttons_choose_data(browser, visit, ask, address):
    visit(address)
    assert [split for _, split, _ in drawn(browser, ask)] == ["val"] * 4  # seeds are one line
    press(browser, "[data-choice=seeds] [data-value=each]")
    assert len(drawn(browser, ask)) == 5
    press(browser, "[data-choice=split] [data-value=both]")
    assert len(drawn(browser, ask)) == 10
    press(browser, '.chip[data-label^="sgd"]')
    assert len(drawn(browser, ask)) == 6
    press(browser, "[data-choice=split] [data-value=val]")
    assert len(drawn(browser, ask)) == 3
    scale = f"{plot('ece')}.chart.layout.yaxis.type"
    assert ask(scale) == "log"
    press(browser, "[data-choice=scale] [data-value=linear]")
    drawn(browser, ask)
    assert ask(scale) == "linear"
    assert ask(f"{plot('accuracy')}.chart.layout.yaxis.type") == "linear"


def test_a_band_holds_every_seed_and_the_line_is_their_mean(browser, visit, ask, address):
    visit(address)
    browser.execute_script("toosure.drawAll()")
    band = ask(f"{plot('ece')}.chart.data.find(t => t.fill).y.slice()")
    half = len(band) // 2
    assert band[:half] == pytest.approx([12] * half) and band[half:] == pytest.approx([10] * half)
    seeds = "toosure.lines().groups.findIndex(g => g.label.startsWith('sgd'))"
    mean = ask(f"Array.from({plot('ece')}.chart.data.find(t => !t.fill && t.group === {seeds}).y)")
    assert mean == pytest.approx([11] * half)


def test_panels_zoom_together_and_one_crosshair_reads_all(browser, visit, ask, address):
    from selenium.webdriver.common.keys import Keys

    visit(address)
    browser.execute_script("toosure.drawAll(); toosure.zoom([20, 60]); toosure.drawAll()")
    for role in ("gap", "loss", "gn_sharpness", "margin_q01"):
        ends = ask(f"[{plot(role)}.chart.xScales.x.low, {plot(role)}.chart.xScales.x.high]")
        assert ends == [20, 60]
    browser.execute_script(f"{plot('ece')}.focus()")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    reading = "querySelector('.reading').textContent"
    assert ask(f"{plot('ece')}.{reading}").startswith("step 20")
    assert "80" in ask(f"{plot('accuracy')}.{reading}")
    browser.switch_to.active_element.send_keys("0")
    browser.execute_script("toosure.drawAll()")
    assert ask(f"{plot('gap')}.chart.xScales.x.high") == 90
    labels = ask(f"[...{plot('gap')}.querySelectorAll('text')].map(t => t.textContent)")
    assert "90" in labels  # the last step has a label


def test_one_label_of_steps_in_each_row_of_panels(browser, visit, ask, address):
    visit(address, 1400)
    browser.execute_script("toosure.drawAll()")
    titled = ask(
        "[...document.querySelectorAll('.panels figure')].map(f => [f.offsetTop, [...f"
        ".querySelectorAll('text')].some(t => t.textContent === 'step')])"
    )
    for _, row in groupby(titled, key=lambda each: each[0]):
        assert sum(has for _, has in row) == 1


def test_a_link_opens_its_section_and_words_lead_to_what_they_mean(browser, visit, ask, address):
    visit(address)
    press(browser, "#trajectories > details > summary")
    assert not ask("document.querySelector('#trajectories > details').open")
    browser.execute_script("location.hash = '#trajectories'")
    wait_until(lambda: ask("document.querySelector('#trajectories > details').open"))
    missing = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
        ".filter(id => !document.getElementById(id))"
    )
    assert ask(missing) == []
    assert ask("[...document.querySelectorAll('.panels h3 a')].every(a => a.dataset.tip)")
    browser.execute_script("document.querySelector('.panels h3 a').focus()")
    assert ask("document.getElementById('bubble').textContent").startswith("mean confidence")


def test_the_accessibility_tree_names_everything(browser, visit, address):
    """Every control and figure has a role and a name, as a screen reader hears them."""
    visit(address)
    browser.execute_script("toosure.drawAll()")
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("button", "link", "image", "slider", "combobox", "searchbox", "region", "table")
    heard = {}
    for node in nodes:
        role = node.get("role", {}).get("value")
        if not node.get("ignored") and role in roles:
            heard.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    assert {"button", "link", "image", "slider", "combobox", "region"} <= heard.keys()
    unnamed = {role: names.count("") for role, names in heard.items() if role != "table"}
    assert not any(unnamed.values()), unnamed


WIDTHS = "[...document.querySelectorAll('.plot')].map(p => [p.chart?.width, p.clientWidth])"
SHEET = 19 / 2.54 * 96  # pixels of A4 without its margins


def test_every_figure_is_printed_at_the_width_of_the_sheet(browser, visit, ask, address):
    """Also those that nobody has scrolled to; and the screen has its own widths again after it."""
    visit(address)
    browser.execute_script(
        f"addEventListener('beforeprint', () => {{ window.printed = {WIDTHS} }})"
    )
    pdf = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    widths = ask("printed")
    assert len(pdf["data"]) > 10_000 and len(widths) >= 10
    assert all(drawn == there and drawn < SHEET for drawn, there in widths)
    browser.execute_script("scrollTo(0, 0)")
    first = "document.querySelector('.plot')"
    wait_until(lambda: ask(f"{first}.clientWidth > 900 && {first}.chart.width > 900"))


def test_a_tall_window_and_a_page_at_rest_have_every_figure(browser, visit, ask, address):
    """A screenshot is taken when the page has loaded, or of the whole page without scrolling."""
    visit(address)  # with figures below the window
    undrawn = "toosure.plots().filter(p => !p.chart && p.clientWidth).length"
    wait_until(lambda: ask(undrawn) == 0)

    count = f"addEventListener('load', () => {{ window.undrawn = {undrawn} }})"
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": count})
    try:
        visit(address, height=20_000)
        assert ask("window.undrawn") == 0
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_play_goes_through_training_and_stops_at_the_end(browser, visit, ask, address):
    visit(address)
    said, button = (
        "document.getElementById('moment-said')",
        "document.getElementById('moment-play')",
    )
    browser.execute_script(
        f"window.seen = [{said}.textContent]; new MutationObserver(() => seen.push("
        f"{said}.textContent)).observe({said}, {{childList: true, characterData: true, "
        f"subtree: true}}); {button}.click()"
    )
    wait_until(lambda: len(ask("seen")) > 1 and ask(f"{button}.textContent") == "▶")
    steps = [step for step, _ in groupby(ask("seen"))]
    assert steps == ["step 90", "step 0", "step 30", "step 60", "step 90"]
