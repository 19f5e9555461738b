"""The cross-fitted choice, the wrapped model, the saved file, and the command with its page."""

import json
import re
import runpy
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

import toosure
from toosure import metrics
from toosure.cli import app
from toosure.evaluate import Estimate
from toosure.page.calibration import calibration_page, headline
from toosure.posthoc import (
    CALIBRATORS,
    Calibrated,
    Calibrator,
    Dirichlet,
    Identity,
    Platt,
    Temperature,
    Vector,
    choose,
    load_calibrator,
    save_calibrator,
)
from toosure.posthoc.same_rows import fingerprints, shared_rows
from toosure.posthoc.select import NLL_TIE, check_affordable, stratified_folds
from toosure.predictions import from_confidence, from_logits, from_probs
from toosure.recalibration import recalibrate

RUN = CliRunner()


def drawn(n, seed, temperature=2.0, classes=3):
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(n, classes, generator=generator)
    probs = (logits / temperature).softmax(1)
    return logits, torch.multinomial(probs, 1, generator=generator).squeeze(1)


# The choice


def test_folds_part_the_rows_and_spread_the_classes():
    labels = torch.tensor([0] * 50 + [1] * 7 + [2] * 5)
    parts = stratified_folds(labels, 5, seed=0)
    assert sorted(torch.cat(parts).tolist()) == list(range(62))
    for part in parts:
        assert labels[part].bincount().tolist() in ([10, 1, 1], [10, 2, 1])
    with pytest.raises(ValueError, match="folds must lie between 2 and the 62 rows; got 63"):
        stratified_folds(labels, 63, seed=0)


class Cheat(Calibrator):
    """Knows the labels of the rows it was fitted on, and nothing of others."""

    fitted_names = ("keys", "labels")

    def solve(self, logits, labels):
        self.set_fitted(keys=logits[:, 0], labels=labels)

    def calibrated(self, logits):
        hit = logits[:, :1].double() == self.keys
        wanted = torch.nn.functional.one_hot(self.labels.long(), 3)[hit.long().argmax(1)]
        return torch.where(hit.any(1, keepdim=True), 50.0 * wanted, logits)

    def become_identity(self, classes, device):
        raise AssertionError


def test_no_row_is_judged_by_a_calibrator_that_saw_it():
    logits, labels = drawn(300, 0)
    choice = choose(logits, labels, {"cheat": Cheat, "temperature": Temperature})
    trials = {trial.name: trial for trial in choice.trials}
    assert choice.name == "temperature" and torch.equal(
        choice.calibrator(logits).argmax(1), logits.argmax(1)
    )
    assert trials["cheat"].nll == pytest.approx(trials["uncalibrated"].nll)
    fold = stratified_folds(labels, 5, 0)[0]
    rest = torch.ones(300, dtype=torch.bool).scatter(0, fold, False)
    wanted = Temperature().fit(logits[rest], labels[rest])(logits[fold])
    torch.testing.assert_close(choice.held_out[fold], wanted)
    assert trials["temperature"].nll == pytest.approx(float(metrics.nll(choice.held_out, labels)))


def test_what_refuses_is_left_out_with_its_reason():
    logits, labels = drawn(35, 0, classes=5)
    labels = labels.clamp(max=3)
    trials = {trial.name: trial for trial in choose(logits, labels, CALIBRATORS).trials}
    assert trials["matrix"].nll is None and "needs at least" in trials["matrix"].note
    assert "class 4 is never among" in trials["bbq"].note
    assert trials["temperature"].nll is not None


def is_slow(name, n, classes):
    try:
        check_affordable(name, n, classes)
    except ValueError:
        return True
    return False


def test_what_is_too_slow_is_not_tried_among_others():
    slow = {
        (n, classes): [name for name in CALIBRATORS if is_slow(name, n, classes)]
        for n, classes in ((5000, 50), (5000, 100), (5000, 1000), (1_000_000, 100))
    }
    assert slow[5000, 1000] == ["vector", "matrix", "dirichlet"]
    assert slow[5000, 50] == [] and slow[5000, 100] == ["matrix", "dirichlet"]
    assert len(slow[1_000_000, 100]) == 9 and "temperature" not in slow[1_000_000, 100]


def test_the_seed_decides_the_folds():
    pair = drawn(200, 0)
    makers = {"temperature": Temperature}
    one, same, other = (choose(*pair, makers, seed=seed).trials[0].nll for seed in (0, 0, 1))
    assert one == same != other


def test_none_is_chosen_where_none_helps():
    logits, labels = drawn(2000, 0, temperature=1.0)
    choice = choose(logits, labels, {"bbq": CALIBRATORS["bbq"]})
    assert choice.name == "uncalibrated" and torch.equal(choice.calibrator(logits), logits)


def test_bad_rows_are_an_error_not_a_choice():
    logits, labels = drawn(100, 0)
    logits[3, 0] = torch.inf
    with pytest.raises(ValueError, match="NaN or infinity"):
        choose(logits, labels, CALIBRATORS)


# Before and after


def test_the_judged_rows_never_take_part_in_the_choice():
    fit = from_logits(*drawn(500, 0))
    results = [recalibrate(fit, from_logits(*drawn(400, seed, 8.0))) for seed in (1, 2)]
    assert results[0].choice.trials == results[1].choice.trials
    assert results[0].n == 400 and results[0].rows == 500


def test_change_is_paired():
    logits, labels = drawn(1000, 1)
    result = recalibrate(from_logits(*drawn(500, 0)), from_logits(logits, labels), "temperature")
    t = float(result.choice.calibrator.temperature)
    rows = [
        torch.nn.functional.cross_entropy(z.double(), labels, reduction="none")
        for z in (logits / t, logits)
    ]
    change = rows[0] - rows[1]
    assert result.change.value == pytest.approx(float(change.mean()), abs=1e-6)
    half = 1.962341 * float(change.std()) / 1000**0.5  # Student's t of 999 degrees
    assert result.change.high - result.change.value == pytest.approx(half, rel=1e-4)
    assert result.after.metrics["accuracy"] == result.before.metrics["accuracy"]
    assert result.after.metrics["nll"].value == pytest.approx(float(rows[0].mean()), abs=1e-6)


def test_a_named_method_is_taken_even_where_it_does_harm():
    logits, labels = drawn(300, 0, temperature=1.0)
    result = recalibrate(from_logits(logits, labels), method="histogram:bins=40")
    assert result.choice.name == "histogram:bins=40"
    with pytest.raises(ValueError, match="needs at least"):
        recalibrate(from_logits(*drawn(9, 0)), method="matrix")


def test_equal_rows_share_a_fold():
    logits, labels = drawn(100, 0)
    rows = torch.cat([logits, logits + 1, logits.log_softmax(1)])
    same = fingerprints(rows, labels.repeat(3))
    parts = stratified_folds(labels.repeat(3), 5, 0, same)
    assert sorted(torch.cat(parts).tolist()) == list(range(300))
    fold = torch.empty(300, dtype=torch.long)
    for k, part in enumerate(parts):
        fold[part] = k
    assert torch.equal(fold[:100], fold[100:200]) and torch.equal(fold[:100], fold[200:])
    trials = {t.name: t.nll for t in choose(rows, labels.repeat(3), {"cheat": Cheat}).trials}
    assert trials["cheat"] == pytest.approx(trials["uncalibrated"])
    with pytest.raises(ValueError, match="only 2 rows differ from each other: too few for 5"):
        choose(logits[:2].repeat(50, 1), labels[:2].repeat(50), {"cheat": Cheat})


def test_single_rows_are_folded_as_without_groups():
    logits, labels = drawn(62, 0)
    plain = stratified_folds(labels, 5, 3)
    grouped = stratified_folds(labels, 5, 3, fingerprints(logits, labels))
    for one, other in zip(plain, grouped, strict=True):
        assert torch.equal(one, other)


def test_a_rare_class_is_not_called_absent():
    logits, labels = drawn(300, 0)
    labels = labels.clamp(max=1)
    labels[7] = 2
    trials = {t.name: t.note for t in choose(logits, labels, CALIBRATORS).trials}
    assert trials["platt"] == "class 2 has 1 row: too few for 5 folds"
    with pytest.raises(ValueError, match="class 2 has 1 row: too few for 5 folds"):
        recalibrate(from_logits(logits, labels), method="platt")
    result = recalibrate(from_logits(logits, labels), from_logits(*drawn(200, 1)), "platt")
    assert result.choice.name == "platt" and result.n == 200


def test_ties_go_to_the_first_and_real_gains_do_not():
    logits, labels = drawn(1000, 0)
    best = Temperature().fit(logits, labels).temperature

    class Worse(Temperature):
        def solve(self, logits, labels):
            super().solve(logits, labels)
            self.set_fitted(temperature=self.temperature * 1.02)

    rows = choose(logits, labels, {"worse": Worse, "temperature": Temperature})
    gain = {t.name: t.nll for t in rows.trials}
    assert NLL_TIE < gain["worse"] - gain["temperature"] < 0.01 and rows.name == "temperature"
    same = choose(logits, labels, {"first": Temperature, "second": Temperature})
    assert same.name == "first" and float(best) == float(same.calibrator.temperature)


def test_trials_are_told_as_they_end():
    heard = []
    choice = choose(*drawn(200, 0), {"temperature": Temperature}, on_trial=heard.append)
    assert [t.name for t in heard] == ["uncalibrated", "temperature"]
    assert set(heard) == set(choice.trials)


@pytest.mark.parametrize("classes", [2, 3, 50])
@pytest.mark.parametrize(
    "disguise",
    [
        lambda z: z.log_softmax(1),
        lambda z: z + 1,
        lambda z: z.half(),
        lambda z: z.double(),
        lambda z: z.softmax(1).log(),
    ],
)
@pytest.mark.parametrize("doubled", ["", "fit", "judge", "both"])
def test_the_same_rows_in_disguise_are_refused(classes, disguise, doubled):
    logits, labels = drawn(300, 0, classes=classes)
    twice = [2 if doubled in (part, "both") else 1 for part in ("fit", "judge")]
    fit, judge = (
        from_logits(z.repeat(k, 1), labels.repeat(k))
        for z, k in zip((logits, disguise(logits)), twice, strict=True)
    )
    with pytest.raises(ValueError, match=r"rows of .* are also rows of"):
        recalibrate(fit, judge, "temperature")


@pytest.mark.parametrize(("part", "refused"), [(2, False), (3, False), (9, True), (30, True)])
def test_a_hundredth_may_be_shared(part, refused):
    """Of 300 judged rows 3 may be rows of the fit."""
    (logits, labels), (more, more_labels) = drawn(300, 0), drawn(300, 1)
    more[:part], more_labels[:part] = logits[:part], labels[:part]
    files = from_logits(logits, labels), from_logits(more, more_labels)
    if refused:
        with pytest.raises(ValueError, match=f"{part} of 300 rows"):
            recalibrate(*files, "temperature")
    else:
        assert recalibrate(*files, "temperature").n == 300


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("digits", [2, 4, 15])
def test_other_rows_are_not_refused(classes, digits):
    """Thousands of rows of few classes, printed to some digits, are often equal by chance."""
    files = []
    for seed in (0, 1):
        logits, labels = drawn(5000, seed, classes=classes)
        probs = ((logits / 2).double().softmax(1) * 10**digits).round() / 10**digits
        files.append((probs.clamp(min=1e-9).log(), labels))
    assert shared_rows(*files) == 0


@pytest.mark.parametrize("change", ["copy", "shuffled", "half", "double"])
def test_the_same_rows_are_refused(change):
    logits, labels = drawn(300, 0)
    more, more_labels = drawn(300, 1)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    other = {
        "copy": (logits, labels),
        "shuffled": (logits[order], labels[order]),
        "half": (
            torch.cat([logits[:150], more[:150]]),
            torch.cat([labels[:150], more_labels[:150]]),
        ),
        "double": (logits.double(), labels),
    }[change]
    with pytest.raises(ValueError, match=r"(300|150) of 300 rows of .* are also rows of"):
        recalibrate(from_logits(logits, labels), from_logits(*other))


def test_rows_that_repeat_by_chance_are_not_refused():
    logits, labels = drawn(400, 0, classes=2)
    more, more_labels = drawn(400, 1, classes=2)
    rounded = [(z.softmax(1)[:, :1] * 20).round() / 20 for z in (logits, more)]
    files = [
        from_logits(torch.cat([p, 1 - p], 1).clamp(1e-3).log(), y)
        for p, y in zip(rounded, (labels, more_labels), strict=True)
    ]
    assert recalibrate(*files, "temperature").n == 400


@pytest.mark.filterwarnings("error")
def test_intervals_of_very_few_rows():
    fit = from_logits(*drawn(300, 0))
    one, two = (recalibrate(fit, from_logits(*drawn(n, 5)), "temperature") for n in (1, 2))
    assert one.change.low is None and "nan" not in one.sentence and "change" not in one.sentence
    logits, labels = drawn(2, 5)
    t = float(two.choice.calibrator.temperature)
    rows = [
        torch.nn.functional.cross_entropy(z, labels, reduction="none") for z in (logits / t, logits)
    ]
    half = 12.7062 * float((rows[0] - rows[1]).std()) / 2**0.5  # Student's t of 1 degree
    assert two.change.high - two.change.value == pytest.approx(half, rel=1e-4)
    for side in (one.before, one.after, two.before, two.after):
        assert all(each.low is None or each.low >= 0 for each in side.metrics.values())


def test_a_missing_interval_is_explained():
    many = recalibrate(from_logits(*drawn(7000, 0)), method="temperature")
    assert many.after.metrics["classwise_ece"].low is None
    assert many.omissions.startswith("No interval: classwise_ece (too slow")
    assert recalibrate(from_logits(*drawn(300, 0)), method="temperature").omissions == ""
    logits, labels = drawn(300, 0)
    probs = logits.softmax(1).clone()
    probs[0] = torch.eye(probs.shape[1])[(labels[0] + 1) % probs.shape[1]]
    endless = recalibrate(from_probs(probs, labels), method="temperature")
    assert endless.omissions == "NLL is infinite: 1 label has probability 0."
    assert "∞ before" in endless.sentence


def test_confidences_are_not_enough():
    only = from_confidence(torch.rand(10), torch.ones(10, dtype=torch.bool))
    with pytest.raises(ValueError, match="holds confidences only"):
        recalibrate(only)


# A model


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3, affine=False))
        self.body[1].eval()  # as a user froze it

    def forward(self, inputs):
        return 4 * self.body(inputs)


@pytest.mark.parametrize("method", ["auto", "temperature", Dirichlet(lam=0.5)])
def test_calibrate_wraps_a_model_and_leaves_it_as_it_was(method):
    inputs, labels = drawn(500, 0)
    model = Net().train()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    loader = DataLoader(TensorDataset(inputs / 4, labels, torch.arange(500)), batch_size=64)
    wrapped = toosure.calibrate(model, loader, method)
    assert isinstance(wrapped, Calibrated) and wrapped.model is model
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(model.state_dict()[key], value) for key, value in state.items())
    wrapped.eval()
    before = metrics.nll(model(inputs / 4), labels)
    assert metrics.nll(wrapped(inputs / 4), labels) < before - 0.05
    probs = wrapped.predict_proba(inputs / 4)
    torch.testing.assert_close(probs.sum(1), torch.ones(500))


class Scaled(nn.Module):
    """A model that takes two inputs, and gives its logits in a dict."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(4.0))

    def forward(self, image, mask=1.0):
        return {"logits": self.scale * image * mask}


def dict_batches(inputs, labels):
    rows = range(len(labels))
    return DataLoader(
        [{"image": inputs[i], "label": labels[i], "mask": torch.ones(3)} for i in rows], 64
    )


@pytest.mark.parametrize(
    ("give", "options"),
    [
        (lambda x, y: (x, y), {}),
        (lambda x, y: {"image": x, "labels": y}, {}),
        (lambda x, y: TensorDataset(x, y), {}),
        (lambda x, y: ((x[i : i + 50], y[i : i + 50]) for i in range(0, 300, 50)), {}),
        (dict_batches, {}),
        (lambda x, y: DataLoader(TensorDataset(y, x, x**0)), {"inputs": [1, 2], "labels": 0}),
        (lambda x, y: DataLoader(TensorDataset(y, x)), {"inputs": lambda b: b[1], "labels": 0}),
        (lambda x, y: (torch.cat([x, x[:9]]), torch.cat([y, torch.full((9,), -100)])), {}),
    ],
    ids=["pair", "dict", "data set", "iterator", "dict batches", "places", "function", "ignored"],
)
def test_calibrate_reads_what_a_watch_reads(give, options):
    inputs, labels = drawn(300, 0)
    wanted = CALIBRATORS["temperature"]().fit(4 * inputs, labels)
    found = toosure.calibrate(Scaled(), give(inputs, labels), "temperature", **options)
    torch.testing.assert_close(found(inputs).detach(), wanted(4 * inputs), rtol=1e-4, atol=1e-5)


def test_calibrate_says_what_it_cannot_do():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(ValueError, match="the model gives tuple, and logits are needed"):
        toosure.calibrate(Pair(3, 3), drawn(50, 0))
    with pytest.raises(ValueError, match=r"a batch of the data must be \(inputs, labels\)"):
        toosure.calibrate(nn.Linear(3, 3), drawn(50, 0)[0])
    with pytest.raises(ValueError, match="gave no batches"):
        toosure.calibrate(nn.Linear(3, 3), [])
    with pytest.raises(ValueError, match="method must be auto or one of temperature"):
        toosure.calibrate(nn.Linear(3, 3), [drawn(50, 0)], "temprature")


@pytest.mark.parametrize("name", CALIBRATORS)
def test_saved_and_loaded(name, tmp_path):
    logits, labels = drawn(200, 0)
    calibrator = CALIBRATORS[name]().fit_quietly(logits, labels)
    save_calibrator(calibrator, tmp_path / "a.pt")
    assert torch.equal(load_calibrator(tmp_path / "a.pt")(logits), calibrator(logits))


@pytest.mark.parametrize(
    "content",
    [
        {"calibrator": "temperature"},
        {"calibrator": ["x"]},
        {"calibrator": "temperature", "state": {}},
        {"calibrator": "temperature", "state": {"temperature": "warm"}},
        {"calibrator": "temperature", "state": {"temperature": torch.tensor(torch.nan)}},
        {"calibrator": "temperature", "state": {"temperature": torch.tensor(-1.0)}},
        {"calibrator": "temperature", "state": {"temperature": torch.ones(3)}},
        {"calibrator": "vector", "state": {"weight": torch.ones(3), "bias": torch.empty(0)}},
    ],
)
def test_a_calibrator_of_nonsense_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt: "):
        load_calibrator(tmp_path / "a.pt")


def test_a_model_that_ends_in_softmax_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.Softmax(1))
    for method in ("temperature", "auto"):
        with pytest.raises(ValueError, match="what comes before it"):
            toosure.calibrate(model, [drawn(50, 0)], method)


def test_files_that_hold_no_calibrator(tmp_path):
    (tmp_path / "junk.pt").write_bytes(b"\x80\x04junk")
    torch.save({"weight": torch.ones(2)}, tmp_path / "other.pt")
    (tmp_path / "empty.pt").touch()
    whole = (tmp_path / "other.pt").read_bytes()
    (tmp_path / "short.pt").write_bytes(whole[:-3])
    for name in ("none.pt", "junk.pt", "other.pt", "empty.pt", "short.pt", ""):
        with pytest.raises(ValueError, match=rf"{name}: .*; `toosure calibrate -o` writes one$"):
            load_calibrator(tmp_path / name)
    with pytest.raises(ValueError, match="cannot be written"):
        save_calibrator(Identity(), tmp_path / "junk.pt" / "a.pt")
    with pytest.raises(ValueError, match="Temperature is not fitted"):
        save_calibrator(Temperature(), tmp_path / "a.pt")


# The command


@pytest.fixture
def files(tmp_path):
    paths = []
    for name, n, seed in (("val", 600, 0), ("test", 500, 1)):
        logits, labels = drawn(n, seed)
        np.savez(tmp_path / f"{name}.npz", logits=logits.numpy(), labels=labels.numpy())
        paths.append(tmp_path / f"{name}.npz")
    return paths


def calibrate(*words):
    return RUN.invoke(app, ["calibrate", *map(str, words)])


def test_command_prints_saves_and_writes_the_page(files, tmp_path):
    result = calibrate(*files, "-o", tmp_path / "a.pt", "--html", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert " helps: NLL " in lines[0]
    _, before, low, high, after, *_ = next(x for x in lines if x.startswith("nll")).split()
    assert float(low) <= float(before) <= float(high) and float(after) < float(before)
    assert "Judged on 500 rows of test.npz; 95 % intervals." in lines
    assert sum(line.split()[0] in CALIBRATORS for line in lines if line and line[0] != " ") >= 11
    logits, labels = drawn(500, 1)
    loaded = metrics.nll(load_calibrator(tmp_path / "a.pt")(logits), labels)
    assert float(loaded) == pytest.approx(float(after), abs=5e-5)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and page.count('class="plot"') == 2
    assert "val.npz" in page and "rank_isotonic" in page and after in page


def test_command_as_json(files):
    result = json.loads(calibrate(*files, "--json", "--method", "temperature:criterion=ece").stdout)
    assert result["method"] == "temperature:criterion=ece" and result["n"] == 500
    assert result["after"]["ece"][0] < result["before"]["ece"][0]
    low, high = result["nll_change"][1:]
    assert low < high < 0
    assert {trial["name"] for trial in result["trials"]} == {"uncalibrated", result["method"]}


def test_the_headline_says_before_and_after_and_whether_it_is_chance():
    fit = from_logits(*drawn(2000, 0))
    helped = recalibrate(fit, from_logits(*drawn(2000, 1)), "temperature")
    before, after = (100 * side.metrics["ece"].value for side in (helped.before, helped.after))
    numbers = f"ECE {before:.1f} points before, {after:.1f} after"
    assert headline(helped) == f"temperature: {numbers}: better"
    assert 'class="fine"' in calibration_page(helped)

    harmed = replace(helped, before=helped.after, after=helped.before)
    rise = helped.ece_change
    harmed = replace(harmed, ece_change=Estimate(-rise.value, -rise.high, -rise.low))
    assert headline(harmed).endswith(f"{after:.1f} points before, {before:.1f} after: worse")
    assert 'class="fine"' not in calibration_page(harmed)

    calibrated = [from_logits(*drawn(400, seed, temperature=1.0)) for seed in (2, 3)]
    same = recalibrate(*calibrated, "temperature")
    assert headline(same).endswith("after: no more than chance")


def test_command_without_test_file_holds_folds_out(files):
    result = calibrate(files[0], "--method", "platt", "--folds", 4)
    assert "each held out in one of 4 folds" in " ".join(result.stdout.split())


def test_command_with_two_splits_of_one_file(tmp_path):
    arrays = {}
    for part, seed in (("val", 0), ("test", 1)):
        logits, labels = drawn(200, seed)
        arrays |= {f"{part}_logits": logits.numpy(), f"{part}_labels": labels.numpy()}
    np.savez(tmp_path / "a.npz", **arrays)
    words = (tmp_path / "a.npz", tmp_path / "a.npz", "--split", "val", "--method", "temperature")
    result = calibrate(*words, "--test-split", "test")
    assert result.exit_code == 0 and "Judged on 200 rows of a.npz" in result.stdout
    assert calibrate(*words, "--test-split", "val").exit_code == 2
    assert calibrate(*words[1:], "--test-split", "test").stdout == result.stdout
    assert calibrate(*words[1:], "--test-split", "val").exit_code == 2
    (tmp_path / "a.npz").rename(tmp_path / "predictions.npz")
    of_run = calibrate(tmp_path, "--method", "temperature").stdout
    assert of_run == result.stdout.replace("a.npz", "predictions.npz")


def test_a_run_without_test_predictions_is_judged_by_folds(files, tmp_path):
    """A loop of one's own keeps its validation rows alone; the report names this command."""
    with np.load(files[0]) as arrays:
        kept = {f"val_{name}": arrays[name] for name in arrays.files}
    (tmp_path / "run").mkdir()
    np.savez(tmp_path / "run" / "predictions.npz", **kept)
    result = calibrate(tmp_path / "run", "--method", "temperature")
    assert result.exit_code == 0, result.output
    assert "this run kept no test predictions: folds of its validation rows judge" in result.stderr
    assert "each held out in one of 5 folds" in " ".join(result.stdout.split())

    (tmp_path / "run" / "predictions.npz").write_bytes(b"PK\x03\x04 cut short")
    result = calibrate(tmp_path / "run", "--method", "temperature")
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert "predictions.npz" in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "temprature"], "did you mean 'temperature'"),
        (["--method", "temperature:criterion=brier"], "criterion must be nll|ece"),
        (["--ci", "95"], "between 0 and 1, such as 0.95; got 95"),
        (["--html", "/dev/null/a.html"], "/dev/null is a file, not a folder"),
        (["-o", "/dev/null/a.pt"], "/dev/null is a file, not a folder"),
        (["--method", "histogram:bins=100000000"], "bins must be at most 10,000; got 100,000,000"),
        (["--method", "dirichlet:lam=inf"], "mu must be 0 or more, and finite; got lam=inf"),
        (["--folds", "700"], "folds must lie between 2 and the 600 rows"),
        (["--split", "val"], "no array 'val_logits'"),
        (["--bins", "1001"], "bins must be from 1 to 1,000; got 1001"),
        (["--method", "own_calibrators:NotOne"], "makes no calibrator: derive it from"),
        (["--method", "own_calibrators:Mine", "-o", "a.pt"], "cannot be saved by name"),
        (["-o", "cal.npz"], "-o cal.npz: a calibrator is written as .pt, so say -o cal.pt; calib"),
        (["-o", "new/cal.json"], "so say -o new/cal.pt"),
    ],
)
def test_command_says_what_is_wrong_in_one_line(files, options, words):
    result = calibrate(
        files[0], *(["--method", "temperature"] if "--method" not in options else []), *options
    )
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1 and words in result.stderr


def test_command_takes_a_calibrator_of_ones_own(files):
    result = calibrate(*files, "--method", "own_calibrators:Mine")
    assert result.exit_code == 0 and result.stdout.startswith("own_calibrators:Mine (T = ")


def test_command_checks_its_files_before_the_work(files, monkeypatch):
    def too_soon(*_):
        raise AssertionError

    monkeypatch.setattr("toosure.recalibration.choose", too_soon)
    place = files[0].parent
    for words in (["-o", files[0] / "a.pt"], ["--html", files[0] / "a.html"], ["-o", place]):
        result = calibrate(files[0], *words)
        assert result.exit_code == 2
        assert "not a folder" in result.stderr or "is a folder" in result.stderr


def test_command_prints_before_it_saves(files, monkeypatch, tmp_path):
    def full(*_):
        raise ValueError("a.pt: cannot be written (No space left on device)")

    monkeypatch.setattr("toosure.posthoc.save_calibrator", full)
    result = calibrate(*files, "--method", "temperature", "-o", tmp_path / "a.pt")
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert " helps: NLL " in result.stdout


def test_command_says_each_trial_as_it_ends(files):
    result = calibrate(*files)
    said = [line.split(":")[0] for line in result.stderr.splitlines()]
    assert said == [f"tried {name}" for name in ("uncalibrated", *CALIBRATORS)]


def test_command_refuses_the_same_rows(files, tmp_path):
    copy = tmp_path / "copy.npz"
    copy.write_bytes(files[0].read_bytes())
    for other, words in ((files[0], "given twice"), (copy, "600 of 600 rows of copy.npz")):
        result = calibrate(files[0], other)
        assert result.exit_code == 2 and words in result.stderr and not result.stdout


def test_example_helps(capsys):
    example = Path(__file__).resolve().parents[2] / "examples" / "calibrate.py"
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    before, after = (float(line.split()[-1]) for line in lines[-2:])
    assert after < before - 0.05


# -- files ----------------------------------------------------------------------------------------


def named_table(path, classes, order, seed, extra=""):
    """Write a table of over-confident probabilities, a column for each class in some order."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(300, len(classes))) + np.array([1.0, 0.0, -1.0])
    probs = np.exp(2 * logits) / np.exp(2 * logits).sum(1, keepdims=True)
    true = [random.choice(classes, p=np.exp(z) / np.exp(z).sum()) for z in logits]
    lines = [",".join([*(f"p_{name}" for name in order), "label", "zip", "id"])]
    for row, label in zip(probs, true, strict=True):
        cells = [f"{row[classes.index(name)]:.12f}" for name in order]
        lines.append(",".join([*cells, label, "01234", "9007199254740993"]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_calibrator_knows_its_classes_and_apply_leaves_other_columns_alone(tmp_path):
    classes = ["cat", "dog", "bird"]
    fit = named_table(tmp_path / "fit.csv", classes, classes, seed=0)
    same = named_table(tmp_path / "same.csv", classes, classes, seed=1)
    turned = named_table(tmp_path / "turned.csv", classes, ["dog", "bird", "cat"], seed=1)
    saved, out = str(tmp_path / "cal.pt"), tmp_path / "out.csv"
    runner = CliRunner()

    done = runner.invoke(app, ["calibrate", fit, same, "--method", "vector", "-o", saved])
    assert done.exit_code == 0, done.output
    done = runner.invoke(app, ["apply", saved, same, "-o", str(out)])
    assert done.exit_code == 0, done.output
    header, first, *_ = out.read_text().splitlines()
    assert header.split(",")[:3] == ["label", "zip", "id"]
    assert first.split(",")[1:3] == ["01234", "9007199254740993"]

    for words in (["apply", saved, turned, "-o", str(out)], ["calibrate", fit, turned]):
        refused = runner.invoke(app, words)
        assert refused.exit_code == 2
        assert "was fitted on the classes cat, dog, bird, in this order" in refused.output
    refused = runner.invoke(app, ["apply", saved, same, "-o", same])
    assert refused.exit_code == 2 and "is an input file: choose another output" in refused.output


def test_what_is_of_another_kind_than_the_fit_is_refused(tmp_path):
    logits = 5 + 2 * torch.randn(300, 3)
    labels = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    vector = Vector().fit(logits, labels)
    save_calibrator(vector, tmp_path / "vector.pt")
    for fitted in (vector, load_calibrator(tmp_path / "vector.pt")):
        with pytest.raises(ValueError, match="was fitted on logits and is given probs"):
            fitted.predict_proba(probs=logits.softmax(1))
    with pytest.raises(ValueError, match="Vector: these are probabilities, not logits"):
        vector.predict_proba(logits.softmax(1))

    # P(class 1) of many rows, given as one logit each; of a few rows it cannot be told.
    platt, p = Platt().fit(logits[:, 0] - logits[:, 1], labels == 0), torch.rand(100)
    for take in (platt.predict_proba, platt.transform):
        for one_each in (p, p[:, None]):
            with pytest.raises(ValueError, match=r"Platt: logits, .* pass probabilities p"):
                take(one_each)
        assert take(probs=p).shape[0] == take(p[:99]).shape[0] + 1 == take(p - 0.5).shape[0]

    # Log-probabilities are logits, and as good as the probabilities.
    probs = logits.softmax(1)
    torch.testing.assert_close(
        Vector().fit(probs.log(), labels).predict_proba(probs=probs),
        Vector().fit(probs=probs, labels=labels).predict_proba(probs.log()),
    )
    assert vector.predict_proba(torch.tensor([[1.0, 0.0, 0.0]])).shape == (1, 3)
    with pytest.raises(ValueError, match="logits are empty"):
        vector.predict_proba(torch.zeros(0, 3))
    with warnings.catch_warnings(action="ignore"):  # of torch, for every question of a shape
        traced = torch.jit.trace(vector, logits[:5])
    torch.testing.assert_close(traced(logits), vector(logits))

    # One temperature does not see what log p and logits differ by.
    temperature = Temperature().fit(logits, labels)
    same = temperature.predict_proba(probs=logits.softmax(1))
    torch.testing.assert_close(same, temperature.predict_proba(logits), atol=1e-6, rtol=0)


def test_arrays_of_numpy():
    logits, labels = np.random.default_rng(0).normal(size=(90, 3)), np.arange(90) % 3
    vector = Vector().fit(logits, labels)
    torch.testing.assert_close(vector(logits), vector(torch.from_numpy(logits)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Estimate(-0.03, -0.05, -0.01), "helps"),
        (Estimate(-0.01, -0.03, 0.01), "lowers the NLL, but not the ECE by more than chance"),
        (Estimate(0.03, 0.01, 0.05), "lowers the NLL and raises the ECE"),
        (Estimate(0.03), "helps"),  # too few rows, or too many numbers, for an interval
    ],
)
def test_a_calibrator_that_lowers_the_nll_is_not_said_to_help_the_ece(change, said):
    logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    wrong = torch.arange(300) % 4 == 0
    labels = torch.where(wrong, logits.argmax(1).roll(1), logits.argmax(1))
    found = recalibrate(from_logits(5 * logits, labels), method="temperature")
    sentence = replace(found, ece_change=change).sentence
    assert re.match(rf"temperature \(T = [\d.]+\) {said}: NLL ", sentence), sentence
