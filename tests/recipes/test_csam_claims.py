"""The claims of the CSAM recipe on made-up scores whose verdicts are known."""

import pytest
from made_up_scores import examples_with, scored

from toosure.recipes import Setting, recipe
from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.csam import claims, contradictions, ensemble_rows, paper, parts, rows

PAPER = Setting(data="cifar10,cifar100")


def main_rows(accuracy=None, ece=None, setting=PAPER, of=rows.sam_variants):
    """Return the first five rows, CSAM best and SGD worst in ECE, and their paired scores."""
    errors = {"SGD": 0.05, "SAM": 0.03, "CSAM": 0.01} | (ece or {})
    accuracies = accuracy or {}
    made = {}
    for row in of(setting)[:5]:
        share = accuracies.get(row.name, 0.9)
        made[row.name] = scored(row, accuracy=share, ece=errors.get(row.name, 0.02))

    examples = {
        record.name: examples_with(record.test["accuracy"], record.test["ece"])
        for each in made.values()
        for record in each.records
    }
    return made, PairedScores(examples, resamples=50)


def verdicts(made):
    return [claim.passed for claim in made]


def test_the_order_holds_where_csam_is_below_sam_below_sgd():
    assert verdicts(claims.order_claims(PAPER, "cifar10", *main_rows())) == [True] * 4
    result = claims.order_claims(PAPER, "cifar10", *main_rows(ece={"CSAM": 0.04}))
    assert verdicts(result) == [False, True, True, True]
    assert result[0].found.startswith("ECE 4.00 : 3.00") and result[0].paper.startswith("1.47")


def test_one_seed_of_another_sign_is_enough_to_fail():
    made, scores = main_rows()
    last = made["CSAM"].records[-1]
    scores.examples[last.name] = examples_with(0.9, 0.031)
    assert claims.order_claims(PAPER, "cifar10", made, scores)[0].passed is False


@pytest.mark.parametrize(("loss", "passed"), [(0.0, True), (0.005, False)])
def test_accuracy_may_fall_by_less_than_the_margin(loss, passed):
    made, scores = main_rows(accuracy={"CSAM": 0.9 - loss})
    claim = claims.order_claims(PAPER, "cifar10", made, scores)[1]
    assert claim.passed is passed and claim.note == claims.MARGIN_RULE


def test_the_order_is_not_judged_where_runs_are_missing_single_or_quick():
    made, scores = main_rows()
    made["CSAM"].records.pop()
    result = claims.order_claims(PAPER, "cifar10", made, scores)
    assert verdicts(result) == [None, None, True, True]
    assert result[0].note == "1 of 6 runs missing or ended early"

    one = Setting(data="cifar10", seeds=(0,))
    result = claims.order_claims(one, "cifar10", *main_rows(setting=one))
    assert verdicts(result) == [None] * 4 and "n = 1" in result[0].note
    quick = Setting(quick=True)
    assert verdicts(claims.order_claims(quick, "digits", *main_rows())) == [None] * 4
    made["SAM"].records.clear()
    result = claims.order_claims(PAPER, "cifar10", made, scores)
    assert {claim.note for claim in result} == {"no complete run"}


def test_temperature_is_reported_without_a_verdict():
    made, _ = main_rows()
    claim = claims.temperature_claim("cifar10", made)
    assert claim.passed is None and claim.found == "3.00 : 1.00"
    assert claim.paper == "1.83 ± .08 : 1.03 ± .01"


@pytest.mark.parametrize(("ece", "passed"), [(0.01, True), (0.03, False)])
def test_csam_must_have_the_lowest_error_of_all_rows(ece, passed):
    setting = Setting(data="cifar100")
    made = {
        row.name: scored(row, ece=ece if row.name == "CSAM" else 0.02)
        for row in rows.baselines(setting)
    }
    claim = claims.lowest_error_claim(setting, "cifar100", made)
    assert len(made) == 16 and claim.passed is passed
    assert claim.found.startswith(f"place {1 if passed else 16} of 16")

    made["VI"].records.clear()
    claim = claims.lowest_error_claim(setting, "cifar100", made)
    assert claim.passed is None and claim.note == "3 of 48 runs missing or ended early"


@pytest.mark.parametrize(("data", "says"), [("cifar100", "yes"), ("cifar10", "not on these data")])
def test_the_paper_compares_losses_on_cifar100_only(data, says):
    setting = Setting(data=data)
    made = {row.name: scored(row) for row in rows.losses(setting)}
    assert claims.lowest_error_claim(setting, data, made).paper == says


@pytest.mark.parametrize(
    ("sharpness", "passed"),
    [
        ((632, 584, 497, 178, 148), [True, True]),
        ((632, 497, 584, 178, 148), [True, False]),
        ((632, 584, 497, 500, 148), [False, False]),
        ((632, 584, 497, 178, None), [None, None]),
    ],
)
def test_the_order_of_sharpness(sharpness, passed):
    setting = Setting(data="cifar100")
    values = dict(zip(claims.SHARPEST_FIRST, sharpness, strict=True))
    made = {row.name: scored(row, sharpness=values[row.name]) for row in rows.sharpness(setting)}
    assert verdicts(claims.sharpness_claims(setting, made)) == passed


def grid_errors(small, large):
    """Return errors whose least gamma is `small` at rho .05 and `large` at rho .1."""
    gammas = (0.0, 0.5, 1.0, 1.5, 2.0)
    return {
        (rho, gamma): 0.01 + abs(gamma - best) / 100
        for rho, best in ((0.05, small), (0.1, large))
        for gamma in gammas
    }


@pytest.mark.parametrize(
    ("small", "large", "passed"),
    [(1.5, 0.5, True), (0.5, 1.5, False), (1.0, 1.0, False), (2.0, 2.0, None)],
)
def test_small_rho_wants_large_gamma(small, large, passed):
    claim = claims.grid_claim(PAPER, "cifar10", grid_errors(small, large))
    assert claim.passed is passed
    assert f"rho 0.05: least ECE at gamma {small:g}" in claim.found
    assert passed is None or claim.note.endswith("n = 1")


def test_an_incomplete_grid_is_not_judged():
    errors = grid_errors(1.5, 0.5)
    del errors[0.1, 1.0]
    claim = claims.grid_claim(PAPER, "cifar10", errors)
    assert claim.passed is None and claim.note == "1 of 10 runs missing or ended early"
    assert claims.grid_claim(PAPER, "cifar10", {}).note == "no complete run"

    half = {(rho, gamma): e for (rho, gamma), e in grid_errors(1.5, 0.5).items() if rho == 0.05}
    for judge in (claims.grid_claim, claims.tuned_claim):  # as `--limit 5` leaves it
        claim = judge(PAPER, "cifar10", half)
        assert claim.passed is None and claim.note == "5 of 10 runs missing or ended early"


@pytest.mark.parametrize(("large", "passed"), [(0.5, True), (0.0, False)])
def test_a_tuned_gamma_is_better_than_none(large, passed):
    claim = claims.tuned_claim(PAPER, "cifar10", grid_errors(1.5, large))
    assert claim.passed is passed and claim.found.startswith("rho 0.05: 1.00 : 2.50, rho 0.1: 1.")
    errors = grid_errors(1.5, 0.5)
    del errors[0.1, 1.0]
    claim = claims.tuned_claim(PAPER, "cifar10", errors)
    assert claim.note == "1 of 10 runs missing or ended early"
    assert claims.tuned_claim(PAPER, "cifar10", {}).note == "no complete run"
    alone = {(0.05, 0.0): 0.01, (0.1, 0.5): 0.01}  # of each radius one run
    assert claims.tuned_claim(PAPER, "cifar10", alone).passed is None


def test_the_papers_own_grid_is_told_for_each_data_set():
    by_data = [claims.grid_claim(PAPER, d, grid_errors(1, 1)).paper for d in PAPER.data_sets]
    assert by_data[0].startswith("yes: gamma 1.5") and "both by Table S4" in by_data[1]


@pytest.mark.parametrize(("csam", "passed"), [(0.01, True), (0.03, False)])
def test_sam_and_csam_on_another_loss(csam, passed):
    setting = Setting(data="cifar100", seeds=(0, 1))
    errors = {"FL": 0.04, "FL+SAM": 0.02, "FL+CSAM": csam}
    made = {
        row.name: scored(row, ece=errors.get(row.name.partition(": ")[2], 0.02))
        for row in rows.combined(setting)
    }
    claim = parts.chain_claim(setting, made, "ResNet-56: FL")
    assert claim.passed is passed
    assert claim.paper == "8.25 ± .23, 6.90 ± .38, 3.94 ± .17"


def test_the_rows_are_those_of_the_paper():
    """Sixteen baselines, nine losses, ten cells of the grid per data set; all words exist."""
    one = Setting(data="cifar100")
    counts = [len(table(one)) for table in (rows.baselines, rows.losses, rows.grid, rows.combined)]
    assert counts == [16, 9, 10, 12]
    assert len(rows.networks(one)) == 27 and len(rows.sharpness(one)) == 5
    assert rows.sharpness(Setting()) == [] and ensemble_rows.ood(one) == []
    assert all(row.configs for row in rows.baselines(one))
    assert paper.TABLE_S5["CSAM"]["ECE"] == "1.93 ± .15"  # as printed


def test_sharpness_shares_its_runs_with_the_variants():
    one = Setting(data="cifar100")
    variants = {c.name for row in rows.sam_variants(one) for c in row.configs}
    shared = [r.name for r in rows.sharpness(one) if r.configs[0].name in variants]
    assert shared == ["SGD", "SAM", "CSAM"]


def test_the_full_size_is_the_papers():
    full = Setting(data="cifar100", full=True)
    config = rows.baselines(full)[0].configs[0]
    assert (config.model, config.steps, config.batch) == ("wrn28_10", 70_312, 128)
    assert rows.length_text(rows.baselines(full)[0]) == "wrn28_10, 200"
    assert {row.size.model for row in rows.sam_variants(full)} == {"resnet56"}


def test_tiny_imagenet_is_one_of_the_networks():
    """The last row of Tables S6 to S10: ResNet-18, which no other part is trained on."""
    both = Setting(data="cifar10,tiny_imagenet", full=True)
    made = rows.networks(both)
    assert len(made) == 27 + 9 and made[-1].name == "ResNet-18: CSAM"
    assert (
        made[-1].figures["accuracy"] == "57.13 ± .96"
        and rows.length_text(made[-1]) == "resnet18, 200"
    )
    config = made[-1].configs[0]
    assert config.data == "tiny_imagenet:augment=true" and config.steps == 148_437

    short = Setting(data="tiny_imagenet")
    assert rows.length_text(rows.networks(short)[0]) == "resnet18, 30"
    assert len(recipe("csam").part("networks").configs(short)) == 9
    with pytest.raises(ValueError, match="networks also on tiny_imagenet"):
        recipe("csam").part("grid").configs(short)


def test_the_order_is_judged_on_tiny_imagenet_too():
    setting = Setting(data="tiny_imagenet", full=True)
    errors = {"CE": 0.05, "SAM": 0.03, "CSAM": 0.01}
    made = {}
    for row in rows.networks(setting):
        name = row.name.partition(": ")[2]
        made[name] = scored(row, ece=errors.get(name, 0.02))
    made["SGD"] = made["CE"]
    records = [record for each in made.values() for record in each.records]
    examples = {record.name: examples_with(0.9, record.test["ece"]) for record in records}
    found = claims.order_claims(setting, "tiny_imagenet", made, PairedScores(examples, 50))
    assert verdicts(found) == [True] * 4 and found[0].paper == "2.75 ± .47 : 3.46 ± .15"


# -- contradictions of the paper ------------------------------------------------------------------


def test_what_two_tables_print_differently_is_found():
    found = contradictions.differing_figures()
    assert found["Mixup, CIFAR-10, WRN-28-10: ECE"] == "2.21 ± 1.11 (3), 4.66 ± 1.11 (S7)"
    assert found["DualFocal, CIFAR-100, WRN-28-10: ECE"] == "2.68 ± .51 (S5), 12.66 ± .51 (S7)"
    assert found["LS, CIFAR-100, ResNet-56: ECE"] == "4.38 ± .14 (S13), 2.31 ± .15 (S16)"
    assert "SAM, CIFAR-100, ResNet-56: classwise ECE" not in found  # .16 ± .00 and .17 ± .01
    assert "SAM, CIFAR-100, ResNet-56: accuracy" not in found  # within what seeds differ by
    assert not any("Tiny-ImageNet" in row for row in found)  # in one table only


def test_sentences_of_the_paper_are_held_against_its_tables():
    """The figures that the hand-written contradictions rest on are those of the tables."""

    def number(table, row, column):
        return float(table[row][column].partition(" ")[0])

    s4 = {key: number(paper.TABLE_S4, key, "ECE") for key in paper.TABLE_S4}
    for radius in ("0.05", "0.1"):
        cells = {key: error for key, error in s4.items() if key.startswith(f"CIFAR-100/{radius}/")}
        assert min(cells, key=cells.get).endswith("/1.5")
    assert number(paper.TABLE_3, "BatchEnsemble", "TCE") < number(paper.TABLE_3, "CSAM", "TCE")
    for table in (paper.TABLE_S11, paper.TABLE_S12):
        assert number(table, "ASAM", "TCE") < number(table, "CSAM", "TCE")
    for table, kind in ((paper.TABLE_1, "/Vanilla"), (paper.TABLE_S12, "")):
        assert number(table, f"CSAM{kind}", "accuracy") < number(table, f"SAM{kind}", "accuracy")
    dropout, alone = (number(paper.TABLE_1, f"SGD/{k}", "SVHN") for k in ("MC-Dropout", "Vanilla"))
    assert dropout > alone
    assert number(paper.TABLE_3, "FL", "accuracy") > number(paper.TABLE_3, "CE", "accuracy")
    assert number(paper.TABLE_S11, "ASAM", "accuracy") > number(paper.TABLE_S11, "SAM", "accuracy")
    losses = {row: number(paper.TABLE_S13, row, "accuracy") for row in paper.TABLE_S13}
    assert min(losses, key=losses.get) == "SGD"


def test_sharpness_is_that_of_cross_entropy_whatever_trains():
    configs = [row.configs[0] for row in rows.sharpness(Setting(data="cifar100"))]
    assert {config.loss for config in configs} == {"ce", "focal", "label_smoothing"}
    assert {(c.curvature_loss, c.curvature_examples) for c in configs} == {("ce", 2000)}
