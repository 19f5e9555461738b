"""The page in a real browser: no error, nothing fetched, no sideways scroll, light, dark, paper."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from toosure.evaluate import evaluate
from toosure.predictions import from_logits
from toosure.report.evaluation import evaluation_page

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    if not CHROMIUM or not DRIVER:
        pytest.skip("no chromium and chromedriver to look at the page with")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


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


def visit(browser, address, width, scheme="light"):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(address)


def ask(browser, expression):
    return browser.execute_script(f"return {expression}")


@pytest.mark.parametrize("width", [390, 820, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_error_and_no_sideways_scroll(browser, address, width, scheme):
    visit(browser, address, width, scheme)
    assert browser.get_log("browser") == []
    assert ask(browser, "document.querySelectorAll('.plot .main-svg').length") >= 2
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    plots = ask(browser, "[...document.querySelectorAll('.plot')].map(p => p.offsetWidth)")
    drawn = ask(browser, "[...document.querySelectorAll('.plot')].map(p => p._fullLayout.width)")
    assert drawn == pytest.approx(plots, abs=1)


def test_only_the_file_is_loaded(browser, address):
    visit(browser, address, 1280)
    found = ask(browser, "performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in found if not name.startswith(("data:", "blob:"))] == []


def test_dark_figures_have_dark_colours(browser, address):
    colour = "document.querySelector('.plot')._fullLayout.font.color"
    visit(browser, address, 1280, "light")
    light = ask(browser, colour)
    visit(browser, address, 1280, "dark")
    assert ask(browser, colour) != light
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert ask(browser, colour) == light  # paper is white
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert ask(browser, colour) != light


def test_a_press_on_a_heading_sorts(browser, address):
    visit(browser, address, 1280)
    column = (
        "[...document.querySelectorAll('.sortable td:nth-child(7)')].map(c => +c.dataset.value)"
    )
    press = "document.querySelector('.sortable th:nth-child(7) button').click()"
    browser.execute_script(press)
    down = ask(browser, column)
    assert down == sorted(down, reverse=True) and len(down) == 3
    browser.execute_script(press)
    assert ask(browser, column) == sorted(down)


def test_legend_and_axes_do_not_overlap(browser, address):
    for width in (390, 1280):
        visit(browser, address, width)
        boxes = ask(
            browser,
            "[...document.querySelectorAll('.plot')].map(p => [p.querySelector('.legend')"
            ".getBoundingClientRect().bottom, p.querySelector('.xy .gridlayer, .gridlayer')"
            ".getBoundingClientRect().top])",
        )
        assert all(legend <= grid + 1 for legend, grid in boxes), boxes


def test_prints(browser, address):
    visit(browser, address, 1280)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 10_000
