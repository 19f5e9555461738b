"""Many runs as one table: conditions that say what they mean, exports, a narrow screen."""

import csv
import io

import pytest
from rich.console import Console
from test_runs import make
from typer.testing import CliRunner

from toosure.cli import app
from toosure.cli.progress import figures
from toosure.cli.runs import figures_of, table_of
from toosure.quantities import shown_in
from toosure.runs import export, find_runs, select

COLUMNS = [f"{q.terminal_split}/{q.key}".lstrip("/") for q in shown_in("table")]


@pytest.fixture
def three(tmp_path):
    for seed, ece in enumerate((0.1, 0.04, None)):
        rows = [{"step": 0, "val/ece": 0.2}, {"step": 20, "val/ece": ece}]
        config = {"seed": seed, "optimizer": "sgd:lr=0.1" if seed else "csam", "at": [1, 2]}
        config["clip"] = 0.5 if seed == 1 else None
        make(tmp_path / f"group/run{seed}", rows, config=config)
    return tmp_path


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ([], [0, 1, 2]),
        (["val/ece<0.05"], [1]),
        (["val/ece >= 0.04"], [0, 1]),
        (["seed=0"], [0]),
        (["seed!=0"], [1, 2]),
        (["optimizer=sgd"], [1, 2]),
        (["optimizer!=sgd"], [0]),
        (["status=complete", "seed<2"], [0, 1]),
        (["seed==0"], [0]),
        (["status='complete'", 'optimizer="csam"'], [0]),
        (["optimizer=s"], [0, 1, 2]),
        (["optimizer==s"], []),
        (["optimizer==sgd"], [1, 2]),
        (["optimizer==sgd:lr=0.1"], [1, 2]),
        (["clip=none"], [0, 2]),
        (["clip!=none"], [1]),
        (["clip==0.5"], [1]),
        (["val/ece=none"], [2]),
        (["val/ece<inf"], [0, 1]),
    ],
)
def test_where(three, where, kept):
    assert [run.config["seed"] for run in select(find_runs(three), where)] == kept


def test_where_that_cannot_be_read(three):
    with pytest.raises(ValueError, match=r'reads like "val/ece<0\.05"'):
        select(find_runs(three), ["val/ece"])
    with pytest.raises(ValueError, match="is not a folder"):
        find_runs(three / "none")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "val/ece<0.5 and seed=0",
            "a number must follow val/ece<; got '0.5 and seed=0': give each",
        ),
        ("val/ece<abc", "a number must follow val/ece<; got 'abc'"),
        ("val/ece>=nan", "a number must follow"),
        ("seed=0,val/ece<0.9", "seed is a number; got '0,val/ece<0.9': give each condition"),
        ("optimizr!=sgd", "no run has 'optimizr' .*; did you mean 'optimizer'"),
        ("nothing<1", "no run has 'nothing' in its config or last row$"),
    ],
)
def test_where_that_could_only_mislead(three, where, message):
    with pytest.raises(ValueError, match=message):
        select(find_runs(three), [where])
    found = command("--out", three, "--where", where)
    assert found.exit_code == 2 and found.stderr.count("\n") == 1
    assert select([], [where] if "no run" in message else []) == []  # nothing to compare with


def test_export(three):
    from pyarrow import parquet

    assert export(find_runs(three), three / "all.parquet") == 6
    table = parquet.read_table(three / "all.parquet").to_pydict()
    assert table["run"] == ["run0", "run0", "run1", "run1", "run2", "run2"]
    assert table["config/seed"] == [0, 0, 1, 1, 2, 2]
    assert table["val/ece"] == [0.2, 0.1, 0.2, 0.04, 0.2, None]
    export(find_runs(three), three / "new" / "er" / "all.csv")
    with (three / "new" / "er" / "all.csv").open() as file:
        assert [row["val/ece"] for row in csv.DictReader(file)][:2] == ["0.2", "0.1"]
    with pytest.raises(ValueError, match=r"\.parquet or \.csv"):
        export(find_runs(three), three / "all.xlsx")
    with pytest.raises(ValueError, match="no rows"):
        export([], three / "all.csv")


def test_export_command(three):
    for option, name in (("--parquet", "a.csv"), ("--csv", "b.csv")):
        found = command("export", "--out", three, option, three / name)
        assert found.exit_code == 0 and "6 rows of 3 runs" in found.stdout
    assert (three / "a.csv").read_text() == (three / "b.csv").read_text()
    for words, said in (
        ((), "name one file"),
        (("--csv", three / "b.txt"), "must end in .csv"),
        (("--to", "tensorboard", "--target", three / "b.csv"), "is a file, not a folder"),
    ):
        found = command("export", "--out", three, *words)
        assert found.exit_code == 2 and said in found.stderr


def command(*words):
    return CliRunner().invoke(app, ["runs", *map(str, words)])


def test_a_folder_without_its_option_is_told_the_option(three):
    """As `toosure report` and `toosure live` take it."""
    found = command(three)
    assert found.exit_code == 2 and f"toosure runs --out {three}" in found.stderr
    assert "Did you mean 'export'" in command("exprt").stderr


def test_export_heeds_options_on_either_side(three):
    before = ["--out", three, "--where", "seed<2"]
    found = command(*before, "export", "--parquet", three / "a.csv", "--where", "seed>0")
    assert found.exit_code == 0 and "2 rows of 1 runs" in found.stdout
    found = command("export", "--out", three, "--parquet", three / "b.csv")
    assert found.exit_code == 0 and "6 rows of 3 runs" in found.stdout


def test_a_key_that_no_run_has_is_named(three):
    found = command("--out", three, "--where", "val/ecee<0.05")
    assert found.exit_code == 2 and "did you mean 'val/ece'?" in found.stderr
    assert command("--out", three, "--where", "val/ece<0").stdout == f"no such runs in {three}\n"


@pytest.mark.parametrize(("width", "kept"), [(60, 1), (80, 2), (100, 4), (200, 6)])
def test_runs_of_a_sweep_are_told_apart_at_any_width(tmp_path, width, kept):
    """Figures give way, and a name is folded with its seed and id in one piece each."""
    row = {
        "step": 2000,
        **{f"{split}/{q.key}": 0.123456 for q in shown_in("table") for split in ("train", "val")},
    }
    stem = "digits-train400-noise0.2-mlp-width50-csam-lr0.1-rho0.05-gamma2-cosine-warmup100"
    names = [f"{stem}-s{seed}-{seed:08x}" for seed in range(3)]
    runs = [make(tmp_path / name, [row]) for name in names]
    text = io.StringIO()
    Console(file=text, width=width).print(table_of(runs, width))
    lines = text.getvalue().splitlines()
    assert all(len(line) <= width and "…" not in line for line in lines)
    assert len(set(lines[0].split()) & set(COLUMNS)) == kept
    assert all(f"{seed:08x}" in text.getvalue() for seed in range(3))
    first = "".join(line.split()[0] for line in lines[1:])
    assert first == "".join(names)


@pytest.mark.parametrize("damage", ["{", "[]", "\x00", ""])
@pytest.mark.parametrize("file", ["status.json", "config.json"])
def test_a_damaged_run_does_not_hide_the_others(three, file, damage):
    (three / "group" / "run1" / file).write_text(damage)
    found = command("--out", three)
    assert found.exit_code == 0, found.output
    lines = {line.split()[0]: line.split()[1] for line in found.stdout.splitlines()[1:4]}
    assert lines == {"run0": "complete", "run1": "unreadable", "run2": "complete"}
    assert f"run1: unreadable: {three / 'group' / 'run1' / file} " in found.stdout
    assert len(select(find_runs(three), ["status=complete"])) == 2
    assert export(find_runs(three), three / "all.csv") == 6


def test_the_table_says_which_data_its_numbers_are_of(tmp_path):
    judged = make(tmp_path / "judged", [{"step": 0, "val/ece": 0.1, "train/ece": 0.01}])
    fitted = make(tmp_path / "fitted", [{"step": 0, "train/ece": 0.01}])
    waiting = make(tmp_path / "waiting")
    assert figures_of(judged)["data"] == "val" and figures_of(judged)["ece"] == "0.1"
    assert figures_of(fitted)["data"] == "training data"
    assert figures_of(waiting)["data"] == ""
    assert [run.training_only for run in (judged, fitted, waiting)] == [False, True, False]


def test_the_table_shows_the_sharpness_that_the_screen_showed(tmp_path):
    row = {"step": 0, "val/ece": 0.1, "train/gn_sharpness": 21.8, "val/gn_sharpness": 40.0}
    shown = figures_of(make(tmp_path / "run", [row]))
    assert shown["train/gn_sharpness"] == "21.8" and "gn_sharpness" not in shown
    assert "train GN sharpness 21.8" in figures(row)
