"""Numbers typed into which_method.md, method.md and control.md are those of the kept scores."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from toosure.recipes import Setting
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.benchmark.scored_rows import with_records
from toosure.recipes.benchmark.shift_scores import corrupted_ece, corrupted_ece_after_temperature
from toosure.recipes.benchmark.tables import grouped
from toosure.recipes.ensembles.saved_scores import read_scores
from toosure.recipes.radius import robust_rows, rows

ROOT = Path(__file__).resolve().parents[2]

DATA = ("cifar10", "cifar100")
STEERED = "radius:final=5,final_band=0"
LOSSES = {
    "cross-entropy": "sgd",
    "mmce by its formula": "mmce",
    "learned smoothing (meta_smoothing)": "meta_smoothing",
    "CalMO": "calmo",
    "focal (gamma 3)": "focal",
    "mit (MIT-L)": "mit",
    "gamma-net + SECE": "gamma_net",
}
MEMBERS = {
    "BatchEnsemble, four members": "batch_ensemble",
    "MC-Dropout, five samples": "mc_dropout:rate=0.1",
    "bSAM, 32 samples": "bsam:rho=0.01,samples=32,data_factor=4",
    "EMA of SAM": ("sam:rho=0.05 + ema", "sam:rho=0.2 + ema"),  # one per data set
    "MIMO, three members": "mimo",
    "Rank-1, four members": "rank1",
    "VI, five samples": "vi",
    "SAM with a steered radius (radius:final=5,final_band=0)": f"sam:rho=0.05 + {STEERED}",
}
MIXTURES = {  # rows of recipes/ensembles
    "five SGD networks": "SGD, deep ensemble (5)",
    "five SAM networks": "SAM, deep ensemble (5)",
    "Laplace on the last layer, after training": "SGD, Laplace",
}
METHOD = {  # the words before the comma, and each number behind it as an option
    "SAM, steered": f"sam:rho=0.05 + {STEERED}",
    "ASAM, steered": f"asam:rho=0.5 + {STEERED}",
}


@pytest.fixture(scope="module")
def files():
    return ScoreFiles(ROOT / "recipes" / "benchmark")


@pytest.fixture(scope="module")
def kept(files):
    """The records of both data sets by the method's label."""
    return [grouped(files, Setting(data=data), data) for data in DATA]


def rows_below(page, heading):
    """Return the cells of the first table below a heading, without links and marks of code."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").split(heading, 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE).group().splitlines()[2:]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line.replace("`", "")) for line in lines]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in plain]


def mean(records, key, scale=100.0, after=False):
    return fmean(
        scale * (record.test_after_temperature if after else record.test)[key] for record in records
    )


def gap(records):
    return mean(records, "confidence") - mean(records, "accuracy")


def differences(typed, values):
    """Return the numbers that are not their value rounded to the digits that are printed."""
    wrong = []
    for text, value in zip(typed, values, strict=True):
        digits = len(text.partition(".")[2])
        if abs(float(text) - value) > 0.5 * 10**-digits + 1e-9:
            wrong.append(f"{text} is {value:.4f}")
    return wrong


def test_losses(kept):
    wrong = []
    for name, *cells, _ in rows_below("which_method.md", "## Losses"):
        for groups, cell in zip(kept, cells, strict=True):
            records = groups.get(LOSSES.get(name, name), [])
            assert bool(cell) == bool(records), f"{name}: {cell!r}, {len(records)} runs"
            if cell:
                *typed, seeds = re.match(r"(.*), (.*), (.*) \((\d)\)$", cell).groups()
                values = [mean(records, "accuracy"), mean(records, "ece"), gap(records)]
                wrong += [f"{name}: {each}" for each in differences(typed, values)]
                assert int(seeds) == len(records), name
    assert not wrong


def test_members(kept):
    wrong = []
    seen = set()
    for name, *cells, _ in rows_below("which_method.md", "## Several members"):
        if name not in MEMBERS:
            continue  # of run folders that the benchmark does not keep
        seen.add(name)
        labels = MEMBERS[name]
        labels = (labels, labels) if isinstance(labels, str) else labels
        for groups, label, cell in zip(kept, labels, cells, strict=True):
            values = [mean(groups[label], "accuracy"), mean(groups[label], "ece")]
            wrong += [f"{name}: {each}" for each in differences(cell.split(", "), values)]
    assert seen == set(MEMBERS)
    assert not wrong


@pytest.mark.parametrize(("place", "data"), [(0, "cifar10"), (1, "cifar100")])
def test_mixtures(place, data):
    scores = read_scores(Setting(data=data, scores=str(ROOT / "recipes" / "ensembles")))
    typed = {name: cells[place] for name, *cells in rows_below("which_method.md", "## Several")}
    wrong = []
    for name, row in MIXTURES.items():
        each = scores[row].values()
        values = [100 * fmean(score[key] for score in each) for key in ("accuracy", "ece")]
        wrong += [f"{name}: {found}" for found in differences(typed[name].split(", "), values)]
    assert not wrong


@pytest.mark.parametrize(("place", "heading"), [(0, "| CIFAR-10 | acc"), (1, "| CIFAR-100 | acc")])
def test_section_6_of_the_method(files, kept, place, heading):
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    lines = (heading + text.split(heading, 1)[1].split("\n\n", 1)[0]).splitlines()[2:]
    wrong = []
    for line in lines:
        name, *typed = (cell.strip(" *") for cell in line.strip("|").split("|"))
        if name == "SGD, twice the epochs":  # not by the common protocol, which fixes the length
            records = records_by_row(files, rows.comparison(Setting(data=DATA[place])))[name]
        else:
            records = kept[place][label_of(name)]
        assert len(records) == 3
        values = [mean(records, "accuracy"), mean(records, "ece"), mean(records, "debiased_ece")]
        values += [mean(records, "nll", 1), fmean(r.temperature for r in records)]
        values.append(mean(records, "nll", 1, after=True))
        wrong += [f"{name}: {each}" for each in differences(typed, values)]
    assert len(lines) >= 9
    assert not wrong


def test_what_should_not_matter_to_the_method(files):
    """Each row is one run; a note may give that of SAM beside it."""
    records = records_by_row(files, robust_rows.robust(Setting(data="cifar100")))
    wrong = []
    for name, radius, scores, note in rows_below("method.md", "### What should not matter"):
        row = re.sub(r"(batch \d),", r"\1", name)
        (record,) = records[row]
        wrong += [f"{name}: {each}" for each in differences([radius], [record.control["rho"]])]
        typed = {row: re.findall(r"\d*\.\d+", scores)}
        if "SAM at .2" in note:
            typed[f"{row}, SAM as chosen"] = re.findall(r"\d*\.\d+", note)[1:]
        for label, numbers in typed.items():
            values = [mean(records[label], "accuracy"), mean(records[label], "nll", 1)]
            values.append(mean(records[label], "ece"))
            wrong += [f"{label}: {each}" for each in differences(numbers, values)]
    assert not wrong


def test_ablations_of_the_method(files):
    """Words after the last comma of a name may say that band and gain are those by default."""
    records = records_by_row(files, robust_rows.ablations(Setting(data="cifar100")))
    wrong = []
    for name, *typed in rows_below("method.md", "### Ablations"):
        name = re.sub(r",? ?(\(.*\)|(?<=,) band and gain by default)$", "", name)
        (record,) = records["steered radius" if name.startswith("the usual run") else name]
        values = [mean([record], "ece"), mean([record], "nll", 1)]
        if gamma := re.fullmatch(r"– \(gamma (.*)\)", typed[-1]):
            assert "rho" not in record.control
            typed[-1] = gamma.group(1)
            values.append(record.control["gamma"])
        else:
            values.append(record.control["rho"])
        wrong += [f"{name}: {each}" for each in differences(typed, values)]
    assert not wrong


CORRUPTED = {  # rows of docs/method.md, with their methods on CIFAR-10 and CIFAR-100
    "SGD": ("sgd", "sgd"),
    "SAM, as chosen (rho .05; .2)": ("sam:rho=0.05", "sam:rho=0.2"),
    "SAM, steered": (f"sam:rho=0.05 + {STEERED}",) * 2,
    "ASAM, steered": (f"asam:rho=0.5 + {STEERED}",) * 2,
}


def test_corrupted_images_of_the_method(kept):
    wrong = []
    for name, *cells in rows_below("method.md", "### On corrupted images"):
        for groups, label, cell in zip(kept, CORRUPTED[name], cells, strict=True):
            assert len(groups[label]) == 3
            values = [
                100 * fmean(error(record) for record in groups[label])
                for error in (corrupted_ece, corrupted_ece_after_temperature)
            ]
            wrong += [f"{name}: {each}" for each in differences(cell.split(", "), values)]
    assert not wrong


CONTROL = {  # rows of docs/control.md, with their methods on CIFAR-10 and CIFAR-100
    "ASAM from rho = .5, steered": (f"asam:rho=0.5 + {STEERED}",) * 2,
    "SAM from rho = .05, steered": (f"sam:rho=0.05 + {STEERED}",) * 2,
    "the best of SAM's fixed radii by NLL": ("sam:rho=0.1", "sam:rho=0.2"),
    "ASAM, the better of rho .5 and 1 by validation NLL at seed 0": ("asam:rho=0.5", "asam:rho=1"),
    "ASAM held at the best radius that was tried, by test NLL (1 and 2)": (
        "asam:rho=1",
        "asam:rho=2",
    ),
    "ASAM held at rho = 5": (None, "asam:rho=5"),
}


def test_what_was_measured_of_control(kept):
    wrong = []
    for name, *cells in rows_below("control.md", "## What was measured"):
        for groups, label, cell in zip(kept, CONTROL[name], cells, strict=True):
            assert bool(cell) == bool(label), name
            if not label:
                continue
            assert len(groups[label]) == 3
            *typed, last = cell.split(" / ")
            nll, _, radius = last.partition(", ended at ")
            values = [mean(groups[label], "accuracy"), mean(groups[label], "ece")]
            values.append(mean(groups[label], "nll", 1))
            numbers = [*typed, nll]
            if radius:
                numbers.append(radius)
                values.append(fmean(record.control["rho"] for record in groups[label]))
            wrong += [f"{name}: {each}" for each in differences(numbers, values)]
    assert not wrong


def test_differences_from_constant_radii(kept):
    wrong = []
    for name, points, nll, _ in rows_below("method.md", "### Is it the radius"):
        radius, data = name.split(", ")
        groups = kept[DATA.index(data.lower().replace("-", ""))]
        ours = groups[f"asam:rho=0.5 + {STEERED}"]
        held = groups[f"asam:rho={radius}"]
        values = [
            mean(ours, key, scale) - mean(held, key, scale)
            for key, scale in (("accuracy", 100), ("nll", 1))
        ]
        wrong += [f"{name}: {each}" for each in differences([points, nll.split(" ")[0]], values)]
    assert not wrong


def records_by_row(files, table):
    """Return the records of a recipe's rows by name."""
    return {each.name: each.records for each in with_records(table, files)}


def label_of(name):
    """Return the benchmark's label of a row of docs/method.md.

    >>> label_of("CSAM, rho = .2, gamma = 1"), label_of("SGD")
    ('csam:rho=0.2,gamma=1', 'sgd')
    """
    name = re.sub(r" \(.*\)", "", name)
    if name in METHOD:
        return METHOD[name]
    method, *options = name.lower().split(", ")
    settings = [option.replace(" = ", "=").replace("=.", "=0.") for option in options]
    return ":".join([method, *([",".join(settings)] if settings else [])])
