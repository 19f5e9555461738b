"""Many settings in a real browser: the filter, the best six, any reference, small multiples."""

import numpy as np
import pytest
from made_runs import make_run

from toosure.page.page_runs import PageRuns
from toosure.page.report import report
from toosure.page.tables import LONG
from toosure.runs import find_runs
from waiting import wait_until

pytestmark = pytest.mark.xdist_group("browser")  # workers of pytest share the browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight settings with predictions of the same examples, one of them with two seeds."""
    folder = tmp_path_factory.mktemp("many") / "runs"
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 80)
    shared = generator.normal(size=(80, 3)) + 1.5 * np.eye(3)[labels]
    settings = [(name, rate, 0) for name in ("sgd", "csam") for rate in (0.01, 0.03, 0.1, 0.3)]
    for place, (name, rate, seed) in enumerate([*settings, ("sgd", 0.1, 1)]):
        config = {"optimizer": f"{name}:lr={rate}", "steps": 20, "seed": seed}
        path = make_run(folder / f"r{place}", config, steps=[0, 10, 20], ece=0.05 + 0.01 * place)
        logits = (1 + place / 3) * (shared + 0.3 * generator.normal(size=shared.shape))
        np.savez(path / "predictions.npz", val_logits=logits, val_labels=labels)
    return folder


@pytest.fixture(scope="module")
def address(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report(folder), encoding="utf-8")
    return path.as_uri()


def rows_shown(ask):
    return ask(
        "[...document.querySelectorAll('#ranking tbody tr')].filter(r => !r.hidden)"
        ".map(r => r.dataset.label)"
    )


def test_a_ranking_that_scrolls_down_is_not_cut_off_at_its_side(visit, ask, tmp_path):
    for place in range(LONG + 1):
        optimizer = f"sgd:lr={0.1 + place},momentum=0.9,weight_decay=0.0005,rho=1"
        config = {"optimizer": optimizer, "model": "resnet20:width=32" if place % 2 else "vgg16"}
        make_run(tmp_path / "runs" / str(place), config, steps=[0, 10], gap=0.1)
    (tmp_path / "page.html").write_text(report(tmp_path / "runs"), encoding="utf-8")
    box = "document.querySelector('#ranking .tall')"
    for width in (1400, 1024):
        visit((tmp_path / "page.html").as_uri(), width)
        assert ask(f"{box}.scrollWidth <= {box}.clientWidth"), width


def seek(browser, text):
    browser.execute_script(
        "const box = document.getElementById('sought'); box.value = arguments[0];"
        "box.dispatchEvent(new Event('input', {bubbles: true}))",
        text,
    )


def test_the_best_six_are_drawn_at_first(browser, visit, ask, address):
    visit(address)
    pressed = "document.querySelectorAll('.chip[aria-pressed=true]').length"
    assert ask(pressed) == 6 and len(rows_shown(ask)) == 8
    browser.execute_script("document.querySelector('[data-set=all]').click()")
    assert ask(pressed) == 8
    browser.execute_script("document.querySelector('[data-set=best]').click()")
    assert ask(pressed) == 6 and browser.get_log("browser") == []


def colours(ask):
    """The colours of the settings that are drawn, by label, as the chips show them."""
    return dict(
        ask(
            "[...document.querySelectorAll('.chip[aria-pressed=true]')]"
            ".map(c => [c.dataset.label, c.querySelector('i').className])"
        )
    )


def test_no_two_settings_in_sight_share_a_colour(browser, visit, ask, address):
    visit(address)
    before = colours(ask)
    hidden, kept = list(before)[1], list(before)[2:]
    last = ask("document.querySelector('.chip:nth-child(8)').dataset.label")
    for label in (hidden, last):
        browser.execute_script(f"document.querySelector('.chip[data-label=\"{label}\"]').click()")
    after = colours(ask)
    assert last in after and len(set(after.values())) == 6
    assert all(after[label] == before[label] for label in kept)  # what stays keeps its colour
    for table in ("ranking", "correlations"):
        swatches = dict(
            ask(
                f"[...document.querySelectorAll('#{table} tbody tr')].map(r => "
                "[r.dataset.label, r.querySelector('.swatch').className])"
            )
        )
        assert {label for label, kind in swatches.items() if "unseen" not in kind} == set(after)
        assert all(swatches[label] == f"swatch {colour}" for label, colour in after.items())
    browser.execute_script("toosure.drawAll()")
    drawn = "document.querySelector('[data-role=ece]').chart.data.filter(t => !t.fill)"
    assert len(set(ask(f"{drawn}.map(t => t.line.color)"))) == 6


def test_the_other_settings_are_there_when_asked_for(browser, visit, ask, address):
    visit(address, 1400)
    seen = "[...document.querySelectorAll('.chip')].filter(c => c.offsetWidth).length"
    legend = "document.querySelector('.legend')"
    assert ask(seen) == 6
    assert ask(f"{legend}.scrollHeight <= {legend}.clientHeight + 1")  # no name is cut
    browser.execute_script("document.getElementById('more-settings').click()")
    assert ask(seen) == 8
    assert ask("document.getElementById('more-settings').getAttribute('aria-expanded')") == "true"
    browser.execute_script("document.getElementById('more-settings').click()")
    assert ask(seen) == 6
    browser.execute_script("document.querySelector('[data-set=all]').click()")
    assert ask(seen) == 8 and ask("document.getElementById('more-settings').hidden")


def test_the_contents_are_whole_and_the_legend_sticks_below_them(browser, visit, ask, address):
    visit(address, 1400)
    links = "document.querySelector('#contents .links')"
    assert ask(f"{links}.scrollWidth <= {links}.clientWidth")
    height = "document.getElementById('contents').offsetHeight"
    bar = "parseFloat(getComputedStyle(document.querySelector('.bar')).top)"
    wait_until(lambda: abs(ask(bar) - ask(height)) < 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lr=0.1 csam", ["csam:lr=0.1"]),
        ("lr>=0.1 SGD", ["sgd:lr=0.1", "sgd:lr=0.3"]),
        ("optimizer=csam lr<0.05", ["csam:lr=0.01", "csam:lr=0.03"]),
        ("lr!=0.1 lr!=0.3 lr!=0.01 sgd", ["sgd:lr=0.03"]),
        ("ece<6", ["sgd:lr=0.01"]),
        ("nothing", []),
    ],
)
def test_the_filter_understands_settings_and_words(browser, visit, ask, address, text, found):
    visit(address)
    seek(browser, text)
    assert sorted(rows_shown(ask)) == found
    assert ask("document.getElementById('sought-count').textContent") == f"{len(found)} of 8"
    chips = ask(
        "[...document.querySelectorAll('.chip')].filter(c => !c.hidden).map(c => c.dataset.label)"
    )
    assert sorted(chips) == found


def test_any_reference_gives_what_python_computes(browser, visit, ask, address, folder):
    visit(address)
    comparison = PageRuns(find_runs(folder)).comparison
    for reference in ("csam:lr=0.3", "sgd:lr=0.1"):
        browser.execute_script(
            "const s = document.querySelector('.reference'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('change', {bubbles: true}))",
            reference,
        )
        for label in ("sgd:lr=0.01", "sgd:lr=0.1", "csam:lr=0.1"):
            found = ask(f"toosure.differences('{label}', '{reference}')")
            expected = comparison.difference(label, reference).values()
            for ours, theirs in zip(found, expected, strict=True):
                assert ours["value"] == pytest.approx(theirs.value, abs=1e-6)
                assert ours["half"] == pytest.approx(theirs.half_width, abs=1e-5)
        row = f"document.querySelector('.differences tr[data-label=\"{reference}\"]')"
        assert "the reference" in ask(f"{row}.textContent")


def test_each_data_set_has_a_reference_of_its_own(browser, visit, ask, tmp_path):
    """Two seeds far apart, whose interval meets 100 points, and single ones, of a huge NLL."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 80)
    signal = generator.normal(size=(80, 3)) + 1.5 * np.eye(3)[labels]
    scales = {"sgd": (1, 1), "sam": (0.01, 1), "adam": (3e5,), "gd": (3e12,)}
    for data in ("digits", "mnist"):
        for name, of_seeds in scales.items():
            for seed, scale in enumerate(of_seeds):
                config = {"optimizer": name, "data": data, "seed": seed}
                path = make_run(tmp_path / "runs" / f"{data}{name}{seed}", config, steps=[0, 10])
                np.savez(path / "predictions.npz", val_logits=scale * signal, val_labels=labels)
    (tmp_path / "page.html").write_text(report(tmp_path / "runs"), encoding="utf-8")
    visit((tmp_path / "page.html").as_uri())

    tables = "[...document.querySelectorAll('.differences tbody')].map(t => t.textContent)"
    choose = (
        "const s = document.querySelectorAll('.reference')[arguments[0]];"
        "s.value = arguments[1]; s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    written = ask(tables)
    assert "to +100.0" in written[0] and "2 seeds" in written[0] and "80 examples" in written[0]
    browser.execute_script(choose, 0, "adam, digits")
    digits, mnist = ask(tables)
    assert digits != written[0] and mnist == written[1]
    browser.execute_script(choose, 0, "sgd, digits")  # as Python wrote it
    assert ask(tables)[0].replace("\u00a0", " ") == written[0].replace("\u00a0", " ")
    assert browser.get_log("browser") == []


def test_small_multiples_follow_the_choice(browser, visit, ask, address):
    visit(address)
    titles = "[...document.querySelectorAll('#multiples-panels h3')].map(h => h.textContent)"
    assert ask(titles) == ["optimizer = csam", "optimizer = sgd"]
    browser.execute_script(
        "const s = document.getElementById('multiples-setting'); s.value = 'lr';"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    assert ask(titles) == ["lr = 0.01", "lr = 0.03", "lr = 0.1", "lr = 0.3"]
    browser.execute_script("toosure.drawAll()")
    lines = (
        "[...document.querySelectorAll('#multiples-panels .plot')].map(p => p.chart.data.length)"
    )
    assert all(count >= 2 for count in ask(lines))


def test_the_front_holds_what_nothing_beats(browser, visit, ask, address):
    visit(address)
    plot = "document.querySelector('[data-role=tradeoff]')"
    browser.execute_script(f"toosure.draw({plot})")
    front = ask(f"{plot}.chart.data[0].y")
    assert front == pytest.approx([5.0])  # all are as accurate: one has the lowest ECE
