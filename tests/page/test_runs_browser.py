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


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_error_and_no_sideways_scroll(browser, visit, ask, address, width, scheme):
    visit(address, width, scheme)
    assert browser.get_log("browser") == []
    assert ask("document.querySelectorAll('.plot .main-svg').length") >= 10
    assert ask("document.documentElement.scrollWidth") <= width
    fits = "Math.abs(p._fullLayout.width - p.offsetWidth) <= 1"  # a resize is drawn a moment later
    wait_until(lambda: ask(f"[...document.querySelectorAll('.plot')].every(p => {fits})"))


def test_nothing_is_loaded_and_no_name_becomes_code(browser, visit, ask, address):
    visit(address)
    found = ask("performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in found if not name.startswith(("data:", "blob:"))] == []
    assert (
        ask("[...document.querySelectorAll('.chip')].map(c => c.textContent)").count(HOSTILE) == 1
    )
    point = f"Plotly.Fx.hover({plot('ece')}, [{{curveNumber: 6, pointNumber: 3}}])"
    browser.execute_script(point)
    said = f"{plot('ece')}.querySelector('.hoverlayer').textContent"
    wait_until(lambda: HOSTILE in ask(said))


def test_colours_follow_the_scheme_and_paper(browser, visit, ask, address):
    colour = f"{plot('ece')}._fullLayout.font.color"
    visit(address, scheme="light")
    light = ask(colour)
    visit(address, scheme="dark")
    assert ask(colour) != light
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert ask(colour) == light
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert ask(colour) != light


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


def slide_to(browser, place):
    browser.execute_script(
        "const s = document.getElementById('moment-step'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        place,
    )


def shown(ask, role):
    return ask(f"{plot(role)}.data.map(t => [t.x, t.y].map(v => Array.from(v)))")


def test_slider_moves_the_three_figures(browser, visit, ask, address, runs_folder):
    visit(address)
    run = Run(runs_folder / "a0")
    before = [shown(ask, role) for role in ROLES]
    slide_to(browser, 1)
    assert ask("document.getElementById('moment-said').textContent") == f"step {run.snapshots[1]}"
    after = [shown(ask, role) for role in ROLES]
    assert all(a != b for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("place", [0, 3])
def test_slider_shows_what_python_draws(browser, visit, ask, address, runs_folder, place):
    visit(address)
    slide_to(browser, place)
    run = Run(runs_folder / "a0")
    arrays = run.snapshot(run.snapshots[place])
    bins = bins_of(arrays, "val")
    histogram = margin_histogram(arrays["val_margin_edges"], arrays["val_margin_counts"])
    drawings = (reliability_diagram(bins), confidence_histogram(bins), histogram)
    for role, drawing in zip(ROLES, drawings, strict=True):
        found = shown(ask, role)
        assert len(found) == len(drawing.data)
        for (x, y), trace in zip(found, drawing.data, strict=True):
            np.testing.assert_allclose(x, trace.x, atol=0.02)
            np.testing.assert_allclose(y, trace.y, atol=0.02)
    whiskers = ask(f"{plot('reliability')}.data.slice(1).map(t => Array.from(t.error_y.array))")
    drawn = [trace.error_y.array for trace in drawings[0].data[1:]]
    for ours, theirs in zip(whiskers, drawn, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_chips_choose_runs_and_buttons_choose_data(browser, visit, ask, address):
    visit(address)
    lines = f"{plot('ece')}.data.length"
    assert ask(lines) == 10  # five runs, two splits
    browser.execute_script("document.querySelector('.chip[data-group=\"0\"]').click()")
    assert ask(lines) == 6
    browser.execute_script("document.querySelector('[data-choice=split] [data-value=val]').click()")
    assert ask(lines) == 3
    scale = f"{plot('ece')}._fullLayout.yaxis.type"
    assert ask(scale) == "log"
    browser.execute_script(
        "document.querySelector('[data-choice=scale] [data-value=linear]').click()"
    )
    assert ask(scale) == "linear"
    assert ask(f"{plot('accuracy')}._fullLayout.yaxis.type") == "linear"


def test_panels_zoom_together(browser, visit, ask, address):
    visit(address)
    browser.execute_script(f"Plotly.relayout({plot('ece')}, {{'xaxis.range': [20, 60]}})")
    for role in ("gap", "loss", "gn_sharpness", "margin_q01"):
        seen = f"{plot(role)}._fullLayout.xaxis.range"
        wait_until(lambda seen=seen: ask(seen) == [20, 60])
    browser.execute_script(f"Plotly.relayout({plot('loss')}, {{'xaxis.autorange': true}})")
    wait_until(lambda: ask(f"{plot('gap')}._fullLayout.xaxis.range")[1] > 80)


def test_prints(browser, visit, address):
    visit(address)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 10_000


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
