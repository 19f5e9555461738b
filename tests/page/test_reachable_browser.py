"""Every control is reached by the Tab key, is seen when it is, and every figure can be saved."""

import pytest

from toosure.page.report import report

pytestmark = pytest.mark.xdist_group("browser")  # workers of pytest share the browser

WATCH = """
window.wanted = [...document.querySelectorAll(
  "a[href], button, input, select, summary, [tabindex='0']"
)].filter((each) => each.checkVisibility() && each.tabIndex >= 0);
window.reached = new Set();
window.unseen = [];
document.addEventListener("focusin", ({ target }) => {
  reached.add(target);
  const { outlineStyle } = getComputedStyle(target);
  const box = target.getBoundingClientRect();
  const bar = document.getElementById("contents");
  const covered = bar.contains(target) ? 0 : bar.offsetHeight;
  if (outlineStyle === "none" || box.bottom <= covered || box.top >= innerHeight) {
    unseen.push(target.outerHTML.slice(0, 100));
  }
});
return wanted.length;
"""


@pytest.fixture(scope="module")
def address(runs_folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report(runs_folder), encoding="utf-8")
    return path.as_uri()


def test_tab_reaches_every_control_and_shows_where_it_is(browser, visit, ask, address):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    visit(address, 1400)
    browser.execute_script("toosure.drawAll()")
    count = browser.execute_script(WATCH)
    assert count > 50
    left = "wanted.filter((each) => !reached.has(each)).map((each) => each.outerHTML)"
    for _ in range(count // 20 + 40):
        # Never past the last control: there the browser's own toolbar takes the focus.
        if not (tabs := min(20, len(ask(left)))):
            break
        ActionChains(browser).send_keys(Keys.TAB * tabs).perform()
    assert ask(left) == []
    assert ask("unseen") == []


def test_every_figure_can_be_saved_and_every_quantity_explains_itself(visit, ask, address):
    visit(address, 1400)
    figures = "[...document.querySelectorAll('figure')].filter(f => f.querySelector('.plot'))"
    assert ask(f"{figures}.length") > 10
    assert ask(f"{figures}.every(f => f.querySelectorAll('[data-do]').length === 2)")
    headings = ask("[...document.querySelectorAll('th')].map(h => h.innerText)")
    measured = [text for text in headings if text.startswith(("ECE", "NLL", "accuracy", "smECE"))]
    assert measured and all(text.rstrip().endswith("?") for text in measured)
