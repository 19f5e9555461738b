"""The page: everything inside, every name escaped, figures that match the numbers."""

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from toosure.evaluate import evaluate
from toosure.evaluate.paired import compare
from toosure.evaluate.subgroups import subgroups
from toosure.evaluate.verdict import verdict
from toosure.figures import DARK, confidence_histogram, reliability_diagram
from toosure.metrics import reliability_from_confidence
from toosure.page.evaluation import evaluation_page
from toosure.page.html import figure, page
from toosure.page.tables import table
from toosure.page.two_models import comparison_page
from toosure.predictions import from_confidence, from_logits

NASTY = '</script><img src=x onerror="alert(1)">&'


@pytest.fixture(scope="module")
def result():
    generator = np.random.default_rng(0)
    predictions = from_logits(generator.normal(0, 3, (400, 3)), generator.integers(0, 3, 400))
    return evaluate(replace(predictions, names=("cat", NASTY, "dog"), source=NASTY))


def test_nothing_is_fetched(result):
    html = evaluation_page(result)
    tags = re.findall(r"<(?:link|script|img|iframe|source|object|embed)\b[^>]*>", html[:20_000])
    assert not [tag for tag in tags if re.search(r"(?:src|href)=[\"'](?!data:)", tag)]
    assert "toosure.chart = " in html and "@import" not in html
    assert "default-src 'none'" in html


def test_names_are_escaped(result):
    html = evaluation_page(result)
    assert NASTY not in html
    assert "<img src=x" not in html
    assert unescape(html).count(NASTY) >= 3  # title, source line, class row


def test_figures_cannot_end_their_script():
    table = reliability_from_confidence([0.9, 0.8], [True, False])
    drawing = confidence_histogram(table).update_layout(title=NASTY)
    block = figure(drawing, NASTY, NASTY)
    assert block.count("</script>") == 1
    inside = re.search(r'<script type="application/json">(.*)</script>', block).group(1)
    assert json.loads(inside)["layout"]["title"]["text"] == NASTY


def test_what_next_follows_the_verdict(result):
    html = evaluation_page(result)
    saved, nll = (result.metrics[key].value for key in ("nll_calibration", "nll"))
    assert f"A temperature would take up to {saved:.2f} off its NLL of {nll:.2f}: " in html
    assert html.index("</h1>") < html.index('aria-label="what next"') < html.index('class="plot"')

    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1, 40_000)
    right = generator.random(40_000) < confidence
    sound = evaluate(from_confidence(confidence, right), samples=50)
    assert "Use the probabilities as they are" in evaluation_page(sound)
    few = evaluate(from_confidence(confidence[:50], right[:50]), samples=50)
    assert verdict(few).kind == "unclear" and 'class="next"' not in evaluation_page(few)
    logits = np.stack([np.log(confidence), np.log1p(-confidence)], 1)
    unsure = evaluate(from_logits(0.5 * logits, np.where(right, 0, 1)), samples=50)
    assert "A temperature" in evaluation_page(unsure)
    alone = evaluate(from_confidence(confidence - 0.2, right), samples=50)
    assert "Keep the probability of every class" in evaluation_page(alone)


def test_what_next_does_not_call_probabilities_right_where_a_group_is_off():
    generator = np.random.default_rng(0)
    confidence, site = generator.uniform(0.6, 0.9, 40_000), np.repeat(["a", "b"], 20_000)
    right = generator.random(40_000) < confidence + np.where(site == "a", 0.1, -0.1)
    predictions = replace(from_confidence(confidence, right), extras={"site": site})
    result = evaluate(predictions, samples=50)
    assert verdict(result).kind == "fine"
    html = evaluation_page(result, subgroups(predictions, "site"))
    assert "some groups by &#x27;site&#x27; are off: see below" in html
    assert "Use the probabilities as they are" not in html


def test_verdict_comes_first(result):
    html = evaluation_page(result)
    heading = re.search(r"<h1>(.*?)</h1>", html).group(1)
    assert re.search(r"Over-confident by [\d.]+ ± [\d.]+ points", heading)
    assert html.index("<h1>") < html.index('class="plot"') < html.index("Every class")


def test_confidences_alone_have_no_class_table():
    html = evaluation_page(evaluate(from_confidence([0.9, 0.6, 0.8], [True, False, True])))
    assert "Every class" not in html
    assert "needs the probability of every class" in html


@pytest.mark.parametrize("top_label", [True, False])
def test_subgroups_are_a_table_like_that_of_the_terminal(top_label):
    generator = np.random.default_rng(0)
    logits, site = generator.normal(0, 3, (400, 2)), np.repeat(["a", NASTY], 200)
    labels = generator.integers(0, 2, 400)
    predictions = replace(from_logits(logits, labels), extras={"site": site})
    by = subgroups(predictions, "site", top_label=top_label)
    html = evaluation_page(evaluate(predictions), by)
    assert NASTY not in html and "<h2>By site</h2>" in html and "groups together" in html
    assert ("P(class 1), %" in html) is not top_label
    gap = by.groups[0].gap
    assert f"<small>{100 * gap.low:+.1f} to {100 * gap.high:+.1f}</small>" in html.replace("−", "-")


def test_a_name_keeps_its_letters_at_the_start_of_a_sentence():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 400)
    calm = from_logits(2 * np.eye(3)[labels] + generator.normal(size=(400, 3)), labels)
    noise = from_logits(generator.normal(size=(400, 3)), labels)
    for source, start in (("preds.csv", "preds.csv is better"), ("", "The second is better")):
        html = comparison_page(compare(noise, replace(calm, source=source), samples=200))
        assert f">{start}" in html


def test_diagram_shows_the_filled_bins_and_their_intervals():
    confidence = np.array([0.55] * 10 + [0.95] * 30)
    correct = np.array([True] * 9 + [False] + [True] * 15 + [False] * 15)
    table = reliability_from_confidence(confidence, correct, bins=10)
    _, over, under = reliability_diagram(table).data
    assert over.name == "too sure" and over.x == pytest.approx([95]) and over.y == (50,)
    assert under.name == "not sure enough" and under.y == pytest.approx([90])
    low, high = 100 * table.interval[9]
    assert over.error_y.array[0] == pytest.approx(float(high) - 50)
    assert over.error_y.arrayminus[0] == pytest.approx(50 - float(low))


def test_histogram_stacks_to_the_share_of_samples():
    table = reliability_from_confidence([0.55, 0.95, 0.96, 0.97], [1, 1, 1, 0], bins=10)
    right, wrong, accuracy, mean = confidence_histogram(table).data
    assert right.y == pytest.approx([25, 50]) and wrong.y == pytest.approx([0, 25])
    assert accuracy.x[0] == pytest.approx(75) and mean.x[0] == pytest.approx(85.75)


def test_axes_have_titles_with_units():
    table = reliability_from_confidence([0.9, 0.8], [True, False])
    for drawing in (reliability_diagram(table), confidence_histogram(table)):
        for axis in (drawing.layout.xaxis, drawing.layout.yaxis):
            assert axis.title.text.endswith(", %")


def test_every_colour_has_a_dark_twin():
    table = reliability_from_confidence([0.9, 0.8, 0.3], [True, False, True])
    for drawing in (reliability_diagram(table), confidence_histogram(table)):
        colours = set(re.findall(r"#[0-9a-fA-F]{6}", drawing.to_json()))
        assert colours <= DARK.keys()


def luminance(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize(
    ("colours", "paper"), [(DARK.keys(), "#ffffff"), (DARK.values(), "#14171b")]
)
def test_text_and_marks_stand_out_from_the_paper(colours, paper):
    ink, quiet, _, *lines = map(luminance, colours)
    contrasts = [
        (max(each, luminance(paper)) + 0.05) / (min(each, luminance(paper)) + 0.05)
        for each in (ink, quiet, *lines)
    ]
    assert contrasts[0] > 7 and contrasts[1] > 4.5  # WCAG 2 for text
    assert min(contrasts[2:]) > 3  # and for graphics


def test_tables_print_what_is_missing():
    html = table(("a", "b"), [("x", None), ("y", float("nan")), ("z", -1.5)], ("", ".1f"))
    assert re.findall(r'class="number" data-value="[^"]*">([^<]*)', html) == ["–", "–", "−1.5"]


def test_a_body_that_names_a_slot_is_left_alone():
    assert "<p><!-- title --></p>" in page("t", "<p><!-- title --></p>", scripts=False)
