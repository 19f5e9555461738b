"""A real browser, and a folder of runs to look at."""

import copy
import shutil

import pytest
from made_runs import HOSTILE, make_run

from waiting import LIMIT, wait_until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-dev-shm-usage "  # in a container /dev/shm may be small, and the page would crash
    "--disable-background-networking --disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    if not CHROMIUM or not DRIVER:
        pytest.skip("no chromium and chromedriver to look at the page with")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = start(webdriver, options, tmp_path_factory)
    driver.set_page_load_timeout(LIMIT)
    driver.set_script_timeout(LIMIT)
    # Without a window a page may not have the focus, and `focus()` then tells no listener.
    driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    yield driver
    driver.quit()


def start(webdriver, options, tmp_path_factory, tries=5):
    """Start the browser; its driver gives it a minute, which a busy machine may exceed."""
    from selenium.common.exceptions import WebDriverException

    for number in range(tries):
        fresh = copy.deepcopy(options)
        fresh.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
        try:
            return webdriver.Chrome(fresh, webdriver.ChromeService(DRIVER))
        except WebDriverException:
            if number == tries - 1:
                raise
    raise AssertionError("not reached")


@pytest.fixture
def visit(browser):
    """Open an address at a width, light or dark."""

    def open_page(address, width=1280, scheme="light", height=900):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.get("about:blank")
        browser.get_log("browser")  # of the page before
        browser.get(address)
        wait_until(lambda: is_ready(browser, address), doing=f"the set-up of {address}")

    return open_page


def is_ready(browser, address):
    """Whether the page at this address is the one shown, and its own scripts have set it up."""
    from selenium.common import exceptions

    script = (
        "return location.href === arguments[0] && document.readyState === 'complete'"
        " && 'ready' in document.documentElement.dataset"
    )
    try:
        return browser.execute_script(script, address)
    except exceptions.WebDriverException as error:
        if "navigation" in error.msg or "execution context" in error.msg:
            return False  # the page before was left in the middle of the answer
        raise


@pytest.fixture
def ask(browser):
    """Evaluate an expression in the page."""
    return lambda expression: browser.execute_script(f"return {expression}")


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory):
    """Five runs: two seeds of one setting, another setting, one hostile name, one that diverged."""
    folder = tmp_path_factory.mktemp("all") / "runs"

    def setting(optimizer, seed=0):
        return {"optimizer": optimizer, "model": "mlp", "steps": 90, "seed": seed}

    for seed in (0, 1):
        make_run(
            folder / f"a{seed}", setting("sgd:lr=0.1,momentum=0.9", seed), ece=0.1 + 0.02 * seed
        )
    make_run(folder / "b", setting("adamw:lr=0.001"), ece=0.05, accuracy=0.7)
    make_run(folder / "evil", setting(HOSTILE), ece=lambda step: 0.2 + step / 1000)
    make_run(folder / "gone", setting("muon:lr=1"), status="diverged", ece=0.4, accuracy=0.5)
    return folder
