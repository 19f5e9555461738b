"""The recipe of the steered radius: its runs, its rules by made-up scores, and a quick one."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_scores import examples_with, record_with
from typer.testing import CliRunner

from toosure.cli import app
from toosure.control import Integrator, RadiusControl
from toosure.recipes import RunStore, Setting, recipe
from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.benchmark.scored_rows import ScoredRow, protocol_row
from toosure.recipes.radius import (
    combinations,
    comparison,
    cost,
    difference_bounds,
    held,
    robust,
    robust_rows,
    rows,
    shift,
)
from toosure.recipes.radius.difference_bounds import BoundedScores, TopLabelScore
from toosure.recipes.radius.robust_rows import with_start
from toosure.recipes.radius.rows import OURS, with_options

KEPT = Path(__file__).parents[2] / "recipes" / "benchmark"
BOTH = Setting(data="cifar10,cifar100", scores=str(KEPT))
C100 = Setting(data="cifar100")
RECIPE = recipe("radius")

# Quick runs of eight steps are too short to be steered to their goal, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:control ended outside")


def row_of(name, method, data, seeds):
    return protocol_row(C100, name, method, data, seeds)


def names(setting, part):
    return [config.name for config in RECIPE.part(part).configs(setting)]


# -- runs -----------------------------------------------------------------------------------------


def test_what_the_benchmark_has_trained_is_found():
    kept = set(ScoreFiles(KEPT).records)
    known = [row for row in rows.comparison(BOTH) if row.name in (rows.SGD, rows.CHOSEN_SAM)]
    assert len(known) == 4
    assert {config.name for row in known for config in row.configs} <= kept
    steered = rows.comparison(replace(BOTH, data="cifar100"))[0]
    assert steered.configs[0].name in kept  # the first steered run


def test_every_rival_is_there_with_its_seeds():
    by_name = {row.name: row for row in rows.comparison(C100)}
    assert by_name["CSAM, chosen"].method == "csam:rho=0.2,gamma=1"
    several = (OURS, "SGD", "mixup", "SAM + EMA", "sam:rho=0.1", "SAM, chosen")
    assert {len(by_name[name].configs) for name in several} == {3}
    others = [row for row in by_name.values() if not rows.is_rival(row.name)]
    grid_cells = [row for row in others if row.name not in (OURS, rows.OURS_ON_SAM)]
    assert {len(row.configs) for row in grid_cells} == {1} and len(grid_cells) == 3
    methods = {row.method for row in by_name.values()}
    grid = {f"csam:rho={rho},gamma={gamma}" for rho in ("0.1", "0.2") for gamma in ("0.5", "1")}
    assert grid | {f"sam:rho={rho}" for rho in ("0.05", "0.1", "0.2")} <= methods
    assert {"adafocal", "gamma_net", "calmo"} <= methods
    assert len(by_name["CalMO"].configs) == 1

    long = by_name["SGD, twice the epochs"].configs[0]
    assert long.steps == 2 * 5273 and long.at == (2 * 5273,)


def test_what_is_changed_is_in_the_runs():
    by_name = {row.name: row.configs[0] for row in robust_rows.robust(C100)}
    assert by_name["start ten times smaller"].optimizer.startswith("asam:rho=0.05,")
    assert by_name["start ten times larger"].optimizer.startswith("asam:rho=5,")
    assert "size=5000" in by_name["control split of 5,000"].control
    assert [by_name[f"batch {n}"].steps for n in (128, 1024)] == [10546, 1318]
    assert by_name["20 % wrong labels"].data == "cifar100:noise=0.2,augment=true"
    assert by_name["20 % wrong labels, SAM as chosen"].control is None

    assert all(config.model == "resnet56" for config in RECIPE.part("network").configs(C100))
    returned = [row for row in rows.combinations(C100) if "returned" in row.name]
    assert len(returned) == 7 and all("return_from=0.9" in row.method for row in returned)
    assert len(names(BOTH, "ablations")) == len(set(names(BOTH, "ablations")))
    with_ema = {row.method for row in robust_rows.ablations(C100) if "weights=ema" in row.method}
    assert len(with_ema) == 3  # of SAM and CSAM the combinations have the runs
    assert len(with_ema & {row.method for row in rows.combinations(C100)}) == 2


def test_another_combination_is_compared_by_its_words():
    method = with_options(rows.SAM, "final_band=0")
    setting = replace(C100, methods=(method,))
    for part in ("comparison", "shift", "network", "robust", "cost"):
        assert "final_band=0" in RECIPE.part(part).configs(setting)[0].control
    for wrong, message in [
        (("sam",), "has no control word `radius`"),
        (("sam+radiuss",), "--method sam"),
        ((rows.SAM, rows.CSAM), "one combination"),
    ]:
        with pytest.raises(ValueError, match=message):
            rows.comparison(replace(C100, methods=wrong))
    with pytest.raises(ValueError, match="does not say its rho"):
        with_start("sam+radius", 10)
    with pytest.raises(ValueError, match="cifar10 and cifar100"):
        rows.comparison(Setting(data="svhn"))


# -- bounds of differences -------------------------------------------------------------------------


def two_runs(images=2000, after=True):
    """Records of two runs that are right on other images, with the examples of each."""
    records = [record_with(row.configs[0]) for row in rows.comparison(C100)[:2]]  # ours and SGD
    rng = np.random.default_rng(3)
    examples = {}
    for record in records:
        examples[record.name] = {
            "confidence": rng.uniform(0.5, 1, images),
            "correct": rng.random(images) < 0.75,
        }
        if after:
            examples[record.name]["confidence_after"] = np.full(images, 49151, dtype=np.uint16)
    return records, examples


def test_the_bound_of_an_accuracy_is_that_of_a_paired_mean():
    (ours, rival), examples = two_runs()
    by_image = examples[ours.name]["correct"] * 100.0 - examples[rival.name]["correct"] * 100.0
    error = by_image.std() / math.sqrt(len(by_image))
    difference = BoundedScores(examples).difference("accuracy", [rival], [ours])
    assert difference.value == pytest.approx(by_image.mean())
    assert difference.low == pytest.approx(difference.value - 1.645 * error, abs=0.15 * error)
    assert difference.high == pytest.approx(difference.value + 1.645 * error, abs=0.15 * error)
    assert difference.paired and len(difference.by_seed) == 1


def test_a_run_does_not_differ_from_itself():
    (ours, _), examples = two_runs()
    for metric in ("smece", "debiased_ece", "accuracy"):
        difference = BoundedScores(examples, 20).difference(metric, [ours], [ours])
        assert (difference.value, difference.low, difference.high) == (0, 0, 0)


def test_a_rival_after_temperature_is_read_from_its_own_confidence():
    (ours, rival), examples = two_runs()
    scores = BoundedScores(examples, 20)
    after = scores.resampled_scores(rival.name, TopLabelScore("debiased_ece", after=True))[0]
    gap = abs(49151 / 65535 - examples[rival.name]["correct"].mean())
    assert after <= 100 * gap + 1e-9  # one bin, less the bias of its noise
    difference = scores.difference("debiased_ece", [rival], [ours], after=True)
    assert difference.value == pytest.approx(
        scores.resampled_scores(ours.name, TopLabelScore("debiased_ece"))[0] - after
    )


def test_a_bound_of_an_error_says_what_chance_alone_shows():
    """A calibrated network of 4,000 images at confidence .75: one bin, E|N(0, s)| = .80 s."""
    (ours, rival), examples = two_runs(images=4000)
    for name in (ours.name, rival.name):
        examples[name]["confidence"] = np.full(4000, 0.75)
    scores = BoundedScores(examples, 10)
    expected = 100 * math.sqrt(2 / math.pi * 0.75 * 0.25 / 4000)
    for runs in ([ours], [rival, ours]):  # one run suffices
        assert scores.by_chance(runs, TopLabelScore("ece")) == pytest.approx(expected, rel=0.1)

    difference = scores.difference("smece", [rival], [ours])
    assert f"chance alone shows {difference.by_chance:.2f}" in difference.text()
    assert "chance" not in scores.difference("accuracy", [rival], [ours]).text()


def test_centred_bounds_lie_around_the_difference_where_resamples_do_not():
    """Resamples of a calibrated network show more error than all its images; ours has one."""
    (ours, rival), examples = two_runs(images=4000)
    rng = np.random.default_rng(5)
    sure = rng.uniform(0.5, 1, 4000)
    examples[ours.name] = {"confidence": sure, "correct": rng.random(4000) < sure - 0.05}
    examples[rival.name] = {"confidence": sure, "correct": rng.random(4000) < sure}

    difference = BoundedScores(examples, 300).difference("ece", [rival], [ours])
    above, below = difference.high - difference.value, difference.value - difference.low
    assert above == pytest.approx(below, rel=0.25)
    for each in examples.values():
        each["log_probability"] = np.zeros(4000)
    plain = PairedScores(examples, 300).differences([rival], [ours]).ece
    assert plain.value == pytest.approx(difference.value)
    assert plain.high - plain.value < 0.8 * (plain.value - plain.low)


def test_a_rival_whose_images_were_not_kept_gives_a_wider_bound():
    (ours, rival), examples = two_runs(after=False)
    scores = BoundedScores(examples, 300)
    difference = scores.difference("smece", [rival], [ours], after=True)
    own = scores.resampled_scores(ours.name, TopLabelScore("smece"))
    assert difference.value == pytest.approx(own[0] - 100 * rival.test_after_temperature["smece"])
    width = difference.high - difference.value
    assert width == pytest.approx(1.645 * math.sqrt(2) * own[1:].std(), rel=0.15)
    assert not difference.paired and "unpaired" in difference.text()
    assert BoundedScores({}).difference("smece", [rival], [ours]) is None


# -- the goal -------------------------------------------------------------------------------------


def scored(row, **numbers):
    """Return a row whose runs all have the same numbers."""
    records = [record_with(config) for config in row.configs]
    for record in records:
        record.test = record.test | {"confidence": 0.9} | numbers
        record.test_after_temperature = record.test_after_temperature | {"smece": 0.02, "nll": 0.5}
    return ScoredRow(row, records)


def goal(ours_gap, rival_gap, *, ours_nll=0.4, accuracy=0.9, seeds=(0, 1)):
    """Judge made-up runs: ours against SAM, of the same errors on every seed."""
    ours = scored(row_of(OURS, rows.SAM, "cifar100", seeds), smece=ours_gap, nll=ours_nll)
    sam = row_of("SAM, chosen", "sam:rho=0.2", "cifar100", seeds)
    rival = scored(sam, smece=rival_gap, accuracy=0.9)
    examples = {}
    for each, gap, right in ((ours, ours_gap, accuracy), (rival, rival_gap, 0.9)):
        for record in each.records:
            examples[record.name] = examples_with(right, gap, images=4000)
    resampled = BoundedScores(examples, 20)
    return comparison.goal_claims(C100, "cifar100", [ours, rival], resampled)


def test_the_goal_is_reached_by_an_equal_rival_and_missed_by_a_better_one():
    equal = {claim.statement: claim.verdict for claim in goal(0.01, 0.01)}
    assert set(equal.values()) == {"pass"} and len(equal) == 4
    worse = goal(0.019, 0.01)
    assert [claim.verdict for claim in worse] == ["FAIL", "FAIL", "pass", "pass"]
    assert "1.90 : 1.00 (SAM, chosen)" in worse[0].found


def test_accuracy_and_nll_have_rules_of_their_own():
    claims = goal(0.01, 0.01, accuracy=0.89, ours_nll=0.51)
    assert [claim.verdict for claim in claims[2:]] == ["FAIL", "FAIL"]
    assert "0.5100 : 0.5000 (SAM, chosen)" in claims[3].found


def test_a_temperature_may_make_a_rival_the_best():
    row = row_of("SGD", "sgd", "cifar100", (0,))
    rival = scored(row, smece=0.05)
    best = comparison.best_rival([rival], "smece")
    assert best.after and best.name == "SGD after T" and best.value == 0.02


def test_one_seed_or_a_missing_run_is_not_judged():
    assert {claim.verdict for claim in goal(0.01, 0.01, seeds=(0,))} == {"not judged"}
    ours = scored(row_of(OURS, rows.SAM, "cifar100", (0, 1)))
    rival = scored(row_of("SGD", "sgd", "cifar100", (0, 1)))
    rival.records.pop()
    claims = comparison.goal_claims(C100, "cifar100", [ours, rival], BoundedScores({}))
    assert {claim.verdict for claim in claims} == {"not judged"}
    assert "1 of 4 runs missing" in claims[0].note
    nothing = comparison.goal_claims(
        C100, "cifar100", [ScoredRow(ours.row, []), rival], BoundedScores({})
    )
    assert [claim.note for claim in nothing] == ["no complete run"] * 4


def test_the_best_sam_is_one_with_a_fixed_radius_alone():
    table = [
        scored(row_of(name, word, "cifar100", (0,)), accuracy=accuracy)
        for name, word, accuracy in [
            ("a", "sam:rho=0.1", 0.7),
            ("b", "sam:rho=0.2", 0.8),
            ("c", "sam:rho=0.2+ema", 0.9),
            ("d", "csam:rho=0.1,gamma=1", 0.9),
        ]
    ]
    assert comparison.best_sam(table).name == "b"
    assert comparison.best_sam(table[2:]) is None


def test_the_paired_table_has_ours_minus_each_rival():
    ours = scored(row_of(OURS, rows.SAM, "cifar100", (0,)))
    rival = scored(row_of("SGD", "sgd", "cifar100", (0,)))
    examples = {
        ours.records[0].name: examples_with(0.9, 0.01),
        rival.records[0].name: examples_with(0.88, 0.01),
    }
    table = comparison.paired_table("cifar100", [ours, rival], PairedScores(examples, 10))
    assert [line[:2] for line in table.rows] == [("SGD", "1")]
    assert table.rows[0][2].startswith("+2.00")


# -- the other parts ------------------------------------------------------------------------------


def keep(folder, setting, part_rows, change):
    """Write made-up scores of the runs of rows; `change` alters the record of a row."""
    records = []
    for row in part_rows:
        for config in row.configs:
            record = record_with(config)
            record.test["confidence"] = 0.9
            records.append(change(row, record) or record)
    files = ScoreFiles(folder)
    files.records = {record.name: record for record in records}
    files.write(records)
    return replace(setting, scores=str(folder))


def test_the_combination_of_least_validation_nll_is_taken(tmp_path):
    setting = Setting(data="cifar10,cifar100")

    def change(row, record):
        better = row.name == "CSAM, EMA"
        return replace(record, val=record.val | {"nll": 0.3 if better else 0.4})

    setting = keep(tmp_path, setting, rows.combinations(setting), change)
    found = combinations.findings(setting, RunStore(tmp_path))
    (claim,) = found.claims
    assert claim.found.startswith("`csam:rho=0.05,gamma=1+radius:actuator=both,weights=ema+ema`")
    assert claim.passed is None and "8 of 12 runs missing" in claim.note
    assert "compared below is `asam" in claim.found
    first, _, last, _ = found.tables
    assert len(first.rows) == 14 and len(last.rows) == 2


@pytest.mark.parametrize("seeds_of_second", [(0, 1, 2), (0, 1)])
def test_of_two_finalists_three_seeds_decide(tmp_path, seeds_of_second):
    """SAM is least at seed 0, ASAM over three; while a run is missing nothing is decided."""
    nll = {("SAM", 0): 0.30, ("SAM", 1): 0.50, ("SAM", 2): 0.50}
    nll |= {("ASAM", 0): 0.35, ("ASAM", 1): 0.31, ("ASAM", 2): 0.32}
    seeds = {"SAM": (0, 1, 2), "ASAM": seeds_of_second}

    def change(row, record):
        value = nll.get((row.name, record.config.seed), 0.6)
        return replace(record, val=record.val | {"nll": value})

    several = [
        row_of(row.name, row.method, "cifar100", seeds.get(row.name, (0,)))
        for row in rows.combinations(C100)
    ]
    setting = keep(tmp_path, C100, several, change)
    (claim,) = combinations.findings(setting, RunStore(tmp_path)).claims
    if len(seeds_of_second) == 3:
        assert claim.found.startswith(f"`{rows.ASAM}`: ASAM 0.3262, SAM 0.4217; at seed 0 SAM 0.3")
        assert "missing" not in claim.note
    else:
        assert claim.found.startswith(f"`{rows.SAM}`: SAM 0.3000, ASAM 0.3500, ")
        assert "1 of 6 runs missing" in claim.note

    # Kept scores tell the finalists, so that the command trains their other seeds.
    assert {c.seed for c in RECIPE.part("combinations").configs(setting)} == {0, 1, 2}
    assert {c.seed for c in RECIPE.part("combinations").configs(C100)} == {0}


def test_constant_radii_are_compared_with_the_steered_one(tmp_path):
    def change(row, record):
        nll = {OURS: 0.90, "asam:rho=2": 0.95}.get(row.name, 1.0)
        after = 0.89 if row.name == "asam:rho=5" else nll
        record.test["nll"] = nll
        record.test_after_temperature["nll"] = after
        return record

    setting = keep(tmp_path, C100, rows.held(C100), change)
    (claim,) = held.findings(setting, RunStore(tmp_path)).claims
    assert claim.verdict == "FAIL" and claim.found == "0.9000 : 0.8900 (asam:rho=5 after T)"

    without = [row for row in rows.held(C100) if row.name != "asam:rho=5"]
    setting = keep(tmp_path / "less", C100, without, change)
    (claim,) = held.findings(setting, RunStore(tmp_path)).claims
    assert claim.verdict == "not judged" and "3 of 12 runs missing" in claim.note


def test_a_start_far_away_must_end_near(tmp_path):
    radii = {"start ten times smaller": 0.26, "start ten times larger": 0.24}

    def change(row, record):
        return replace(record, control={"rho": radii.get(row.name, 0.2)})

    setting = keep(tmp_path, C100, robust_rows.robust(C100), change)
    found = robust.findings(setting, RunStore(tmp_path))
    assert [claim.verdict for claim in found.claims] == ["FAIL", "pass", "not judged"]
    assert found.claims[0].found == "0.260 : 0.200"
    assert "batch 128 2.00" in found.claims[2].found
    assert "0.240" in str(found.tables[0].rows)


def test_corruptions_are_judged_against_a_temperature(tmp_path):
    def change(row, record):
        mean = {"ece": 0.10, "ece_after_temperature": 0.12 if row.name == "SGD" else 0.09}
        shifts = {"corruptions": 15, "severities": [1, 2, 3, 4, 5], "mean": mean}
        return replace(record, shifts=shifts)

    setting = keep(tmp_path, C100, rows.shift(C100), change)
    found = shift.findings(setting, RunStore(tmp_path))
    assert [claim.verdict for claim in found.claims] == ["pass", "FAIL"]
    assert found.claims[0].found == "10.00 : 12.00 (n = 3 : 3)"
    assert rows.OURS_ON_SAM in found.tables[0].rows[1][0]  # shown, not judged

    def two_of_sgd(row, record):
        return record if row.name == "SGD" and record.config.seed == 2 else change(row, record)

    setting = keep(tmp_path / "less", C100, rows.shift(C100), two_of_sgd)
    found = shift.findings(setting, RunStore(tmp_path))
    assert found.claims[0].found.endswith("(n = 3 : 2)") and found.claims[0].passed is None
    assert "1 of 6 runs missing" in found.claims[0].note
    assert [line[1] for line in found.tables[0].rows] == ["3", "3", "2", "3", "3"]


def test_the_share_of_looks_is_their_number_times_what_one_takes(tmp_path):
    """The largest of the seeds is judged."""

    def change(row, record):
        record.control = {"rho": 0.2, "look_seconds": 0.02 if record.config.seed == 1 else 0.01}
        return replace(record, seconds=41.0)  # of which 1 s measuring

    setting = keep(tmp_path, C100, rows.cost(C100), change)
    found = cost.findings(setting, RunStore(tmp_path))
    (claim,) = found.claims
    assert [line[1] for line in found.tables[0].rows] == ["0", "1", "2"]
    looks = int(found.tables[0].rows[0][2])
    assert claim.found == f"{100 * looks * 0.02 / 40:.2f} %" and claim.verdict == "FAIL"
    assert found.tables[0].rows[0][-1] == f"{100 * looks * 0.01 / 40:.2f}"


@pytest.mark.parametrize("words", ["", "every=20", "return_from=0.9", "until=0.5", "weights=ema"])
def test_looks_are_counted_as_the_controller_takes_them(words):
    method = with_options(rows.SAM, words) if words else rows.SAM
    config = row_of(OURS, method, "cifar100", (0,)).configs[0]
    if words == "weights=ema":
        config = replace(config, average="ema")

    from toosure.train.control import settings_of

    settings = settings_of(config)
    control = RadiusControl.__new__(RadiusControl)
    control.settings = settings
    control.steps = config.steps
    control.steps_taken = 0
    control.return_step = settings.return_step(config.steps)
    examples = 2000 + 2048 * (words == "weights=ema")
    control.every = settings.interval(examples, config.batch, 2, config.steps)
    control.integrator = Integrator()
    control.reading = None
    control.look = lambda progress: None
    assert cost.looks_of(config) == sum(control.step() for _ in range(config.steps))


def test_ablations_are_reported(tmp_path):
    setting = keep(tmp_path, C100, robust_rows.ablations(C100), lambda row, record: None)
    found = robust.ablations(setting, RunStore(tmp_path))
    assert found.claims == [] and len(found.tables[0].rows) == 19


# -- the command ----------------------------------------------------------------------------------


def reproduce(*words):
    return CliRunner().invoke(app, ["reproduce", "radius", *map(str, words)])


def test_a_quick_part_trains_scores_and_writes_its_page(tmp_path):
    page = tmp_path / "RESULTS.md"
    words = ("--quick", "--device", "cpu", "--scores", tmp_path / "scores", "--write", page)
    result = reproduce(*words, "--only", "cost", "--out", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert "## cost: the share of the time" in page.read_text()
    (line,) = (tmp_path / "scores" / "scores.jsonl").read_text().splitlines()
    control = json.loads(line)["control"]
    assert control["rho"] > 0 and control["look_seconds"] > 0

    # The page is made again from the scores alone.
    again = reproduce(*words, "--only", "cost", "--from", tmp_path / "scores")
    assert again.exit_code == 0, again.output
    assert "the scores of their runs were kept" in page.read_text()


def test_options_that_make_no_sense_are_refused():
    assert "has no --full" in reproduce("--full").output
    result = reproduce("--only", "comparison", "--list", "--method", "sam:rho=0.1")
    assert result.exit_code != 0 and "has no control word" in result.output


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:control never looks")  # of an EMA, in runs of 8 steps
def test_every_part_of_a_quick_recipe(tmp_path):
    words = ("--quick", "--device", "cpu", "--out", tmp_path, "--json")
    result = reproduce(*words, "--shift", "all:images=20")
    assert result.exit_code == 0, result.output
    page = json.loads(result.stdout.splitlines()[-1])
    assert set(page["parts"]) == {part.name for part in RECIPE.parts}
    statement = " ".join(claim["statement"] for claim in page["claims"])
    for claim in ("smECE is not worse", "NLL is the lowest", "ten times larger", "at most 3 %"):
        assert claim in statement


def test_bounds_are_stated_as_the_rules_say():
    text = str(comparison.RULES.rows)
    assert f"{comparison.MARGIN} points" in text and comparison.MARGIN == 0.3
    assert difference_bounds.LEVEL == 0.95 and cost.MAX_SHARE == 0.03 and robust.SAME_RADIUS == 0.25
