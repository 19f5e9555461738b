"""The page in a real browser: no error, nothing fetched, no sideways scroll, light, dark, paper."""

from dataclasses import replace

import numpy as np
import pytest

from toosure.evaluate import evaluate
from toosure.page.evaluation import evaluation_page
from toosure.predictions import from_logits
from waiting import wait_until

pytestmark = pytest.mark.xdist_group("browser")  # workers of pytest share the browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with three classes, one of them with a long and hostile name."""
    generator = np.random.default_rng(0)
    names = ("cat", "<b>" + "very-long-name" * 8, "dog")
    predictions = from_logits(generator.normal(0, 3, (400, 3)), generator.integers(0, 3, 400))
    path = tmp_path_factory.mktemp("page") / "a.html"
    result = evaluate(replace(predictions, names=names, source="run" * 60 + ".npz"), samples=100)
    path.write_text(evaluation_page(result), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [390, 820, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_error_and_no_sideways_scroll(browser, visit, ask, address, width, scheme):
    visit(address, width, scheme)
    assert browser.get_log("browser") == []
    browser.execute_script("toosure.drawAll()")
    assert ask("document.querySelectorAll('.plot > svg.chart').length") >= 2
    assert ask("document.documentElement.scrollWidth") <= width
    fits = "Math.abs(p.chart.width - p.offsetWidth) <= 1"  # a resize is drawn a moment later
    wait_until(lambda: ask(f"[...document.querySelectorAll('.plot')].every(p => {fits})"))


def test_only_the_file_is_loaded(browser, visit, ask, address):
    visit(address, 1280)
    found = ask("performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in found if not name.startswith(("data:", "blob:"))] == []


def test_dark_figures_have_dark_colours(browser, visit, ask, address):
    colour = "document.querySelector('.plot svg g:nth-of-type(2)').getAttribute('fill')"
    visit(address, 1280, "light")
    light = ask(colour)
    visit(address, 1280, "dark")
    assert ask(colour) != light
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert ask(colour) == light  # paper is white
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    wait_until(lambda: ask(colour) != light)


def test_a_press_on_a_heading_sorts(browser, visit, ask, address):
    visit(address, 1280)
    column = (
        "[...document.querySelectorAll('.sortable td:nth-child(7)')].map(c => +c.dataset.value)"
    )
    press = "document.querySelector('.sortable th:nth-child(7) button').click()"
    order = "document.querySelector('.sortable th:nth-child(7)').getAttribute('aria-sort')"
    browser.execute_script(press)
    wait_until(lambda: ask(order) == "descending")
    down = ask(column)
    assert down == sorted(down, reverse=True) and len(down) == 3
    browser.execute_script(press)
    wait_until(lambda: ask(order) == "ascending")
    assert ask(column) == sorted(down)


def test_legend_lies_above_the_axes_and_is_not_cut(browser, visit, ask, address):
    for width in (390, 1280):
        visit(address, width)
        browser.execute_script("toosure.drawAll()")
        boxes = ask(
            "[...document.querySelectorAll('.plot')].map(p => {"
            " const box = p.getBoundingClientRect();"
            " const names = [...p.querySelectorAll('g[transform] text')].map(t => t"
            ".getBoundingClientRect()); return [Math.max(...names.map(n => n.bottom)) - box.top,"
            " p.chart.top, Math.max(...names.map(n => n.right)), box.right] })"
        )
        assert len(boxes) == 2
        for bottom, top, right, edge in boxes:
            assert bottom <= top + 1 and right <= edge + 1


def test_every_point_of_a_figure_can_be_read_by_keyboard(browser, visit, ask, address):
    from selenium.webdriver.common.keys import Keys

    visit(address)
    browser.execute_script("document.querySelector('.plot').focus()")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    said = ask("document.querySelector('.plot .tip').textContent")
    assert "accuracy" in said and "95 % interval" in said
    first = said
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert ask("document.querySelector('.plot .tip').textContent") != first
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert ask("document.querySelector('.plot .tip').hidden")


def test_figures_become_files_and_tables_csv(browser, visit, ask, address):
    visit(address)
    text = ask("toosure.svgText(document.querySelector('.plot'))")
    assert text.startswith("<svg") and "too sure" in text and "xmlns=" in text
    png = browser.execute_async_script(
        "toosure.pngUrl(document.querySelector('.plot')).then(arguments[0])"
    )
    assert png.startswith("data:image/png;base64,") and len(png) > 5000
    csv = ask("toosure.csv(document.querySelector('.sortable'))")
    assert (
        csv.splitlines()[0].startswith('class,predicted,"gap, points",samples,')
        and len(csv.splitlines()) == 4
    )


def test_prints(browser, visit, ask, address):
    visit(address, 1280)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 10_000
