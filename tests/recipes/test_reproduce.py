"""`toosure reproduce --quick`, from the command to the pages: every part, nothing trained twice."""

import builtins
import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.runs import find_runs

pytestmark = pytest.mark.xdist_group("reproduce")  # workers of pytest share what was trained
RUN = CliRunner()


def reproduce(*words):
    return RUN.invoke(app, ["reproduce", *map(str, words)])


@pytest.fixture(scope="module")
def sharp(tmp_path_factory):
    """The quick version of the whole paper, carried out once."""
    out = tmp_path_factory.mktemp("sharp")
    words = ("too-sharp", "--quick", "--out", out, "--device", "cpu", "--write", out / "RESULTS.md")
    result = reproduce(*words)
    assert result.exit_code == 0, result.output
    return out, words, result


def test_every_run_is_complete_and_counted(sharp):
    out, _, result = sharp
    runs = find_runs(out)
    assert len(runs) == 22 and {run.status for run in runs} == {"complete"}
    assert "22 of 22: complete" in result.stdout
    assert "judged claims hold; " in result.stdout.splitlines()[-1]
    assert "(quick: small runs, not on" in result.stdout.splitlines()[-1]


def test_repeating_trains_nothing(sharp):
    out, words, _ = sharp
    times = {file: file.stat().st_mtime_ns for file in out.rglob("metrics.jsonl")}
    again = reproduce(*words, "--json")
    assert again.exit_code == 0, again.output
    assert {file: file.stat().st_mtime_ns for file in out.rglob("metrics.jsonl")} == times
    record = json.loads(again.stdout)
    assert len(record["sweeps"]) == 1 and record["sweeps"][0]["trained"] == 22


def test_json_has_claims_values_and_provenance(sharp):
    out, _, _ = sharp
    record = json.loads((out / "too-sharp.json").read_text())
    assert {c["verdict"] for c in record["claims"]} == {"pass", "not judged"}
    cell = record["parts"]["table1"]["values"]["couplings"]["train ECE"]["GD"]["0"]
    assert len(cell) == 2 and all(-1 <= each["low"] <= each["high"] <= 1 for each in cell)
    assert min(each["pearson"] for each in cell) > 0.5  # quick tells the paper's story
    run = record["parts"]["mse"]["runs"][0]
    assert run["rows"] > 3 and run["seconds"] > 0 and run["device"] == "cpu"


def test_the_markdown_says_where_every_number_comes_from(sharp):
    out, _, _ = sharp
    text = (out / "RESULTS.md").read_text()
    for part in (
        "table1",
        "fig1",
        "muon",
        "fig2",
        "mse",
        "certificates",
        "batch",
        "calmo",
        "calmo-muon",
    ):
        section = text.split(f"\n## {part}: ")[1].split("\n## ")[0]
        assert f"`toosure reproduce too-sharp --only {part} --quick`" in section
        assert re.search(r"\d+ runs, [\d,]+ rows, \d+ s of running", section), section[:300]
        assert "cpu, torch 2." in section
    widths = [line.count(" | ") for line in text.split("## Claims")[1].splitlines() if "|" in line]
    assert len(widths) > 30 and set(widths[:20]) == {5, 0}
    assert "wall seconds" in text.split("## Time and place")[1]


def test_pictures_beside_the_markdown_are_shown(sharp, tmp_path):
    out, _, _ = sharp
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "fig2.png").write_bytes(b"")
    reproduce("too-sharp", "--quick", "--from", out, "--write", tmp_path / "RESULTS.md")
    text = (tmp_path / "RESULTS.md").read_text()
    assert text.count("](figures/") == 1
    assert "](figures/fig2.png)" in text.split("## fig2: ")[1].split("\n## ")[0]


def test_the_page_has_every_figure(sharp):
    out, _, _ = sharp
    html = (out / "too-sharp.html").read_text()
    names = set(re.findall(r'data-name="([^"]+)"', html))
    assert names >= {"fig1", "fig2", "hypotheses", "portraits-train", "portraits-val", "table1"}
    assert names >= {"mse-gd", "mse-sgd", "mse-reliability", "certificates"}
    assert names >= {
        f"trajectory-{name}" for name in ("gd", "sgd", "adamw", "muon", "sam", "bulksgd")
    }


def test_without_plotly_claims_are_printed_with_how_to_get_figures(sharp, monkeypatch, tmp_path):
    out, _, _ = sharp
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "plotly":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    page = tmp_path / "page.html"
    result = reproduce("too-sharp", "--quick", "--from", out, "--html", page)
    assert result.exit_code == 0 and "Table 1" in result.stdout
    assert f"toosure reproduce too-sharp --from {out}" in result.stderr
    assert not page.exists() and page.with_suffix(".json").exists()


def test_from_trains_nothing_and_says_what_is_missing(tmp_path):
    result = reproduce("too-sharp", "--quick", "--from", tmp_path, "--only", "certificates")
    assert result.exit_code == 1 and "missing" in result.stdout
    assert not list(tmp_path.glob("*/metrics.jsonl"))


def test_from_writes_only_where_it_is_asked_to(sharp, tmp_path):
    out, _, _ = sharp
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    result = reproduce("too-sharp", "--quick", "--from", out, "--only", "mse")
    assert result.exit_code == 0 and "not here: table1, fig1" in result.stdout
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == before
    result = reproduce("too-sharp", "--quick", "--from", out, "--html", "/proc/no/page.html")
    assert result.exit_code == 2 and "cannot be written" in result.stderr
    assert "judged claims hold" in result.stdout  # shown before anything is written
    for words, said in (
        (("--from", tmp_path / "typo"), "there is no such folder"),
        (("--from", out, "--html", tmp_path / "page.json"), "ends in .html"),
    ):
        result = reproduce("too-sharp", "--quick", *words)
        assert result.exit_code == 2 and said in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_part_has_a_page_of_its_own(sharp, tmp_path):
    out, _, _ = sharp
    shutil.copytree(out, tmp_path / "runs")
    whole = (tmp_path / "runs" / "too-sharp.html").read_text()
    words = ("--only", "mse,batch", "--out", tmp_path / "runs", "--device", "cpu")
    assert reproduce("too-sharp", "--quick", *words).exit_code == 0
    assert (tmp_path / "runs" / "too-sharp.html").read_text() == whole
    assert "mse-gd" in (tmp_path / "runs" / "too-sharp-mse-batch.html").read_text()


def test_damaged_folders_are_named(sharp, tmp_path):
    out, _, _ = sharp
    shutil.copytree(out, tmp_path / "runs")
    with (tmp_path / "runs" / "sweeps.jsonl").open("a") as file:
        file.write('{"parts": ["mse"], "tra')
    gd = next((tmp_path / "runs").glob("*-gd-*"))
    (gd / "metrics.jsonl").write_text("")
    result = reproduce("too-sharp", "--quick", "--from", tmp_path / "runs", "--json")
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert len(record["sweeps"]) == 1
    assert record["problems"] == {gd.name: "complete, but only 0 rows are left of it"}


def test_a_part_that_is_of_one_data_set_says_so(tmp_path):
    result = reproduce("too-sharp", "--data", "cifar100", "--only", "calmo", "--out", tmp_path)
    assert result.exit_code == 0 and "calmo has no runs on cifar100" in result.stdout


def test_a_run_that_fails_is_reported_and_the_rest_go_on(tmp_path):
    """CIFAR-10 is not there: every run fails, and the command says so in the end."""
    words = (
        "--only",
        "certificates",
        "--out",
        tmp_path,
        "--data-root",
        tmp_path,
        "--device",
        "cpu",
    )
    result = reproduce("too-sharp", *words)
    assert result.exit_code == 1
    problem = result.stdout.split("missing or ended early: ")[1]
    assert "cifar-10-batches-py" in problem and "failed: " in result.stdout


def test_list_and_mistakes():
    result = reproduce("too-sharp", "--list", "--only", "fig1,fig2")
    assert result.stdout.splitlines() == [
        "fig1           both rise and fall, and when they peak (8 runs, 8 missing)",
        "fig2           BulkSGD, and flat minima against flat directions (26 runs, 26 missing)",
    ]
    for words, said in (
        (("too-blunt",), "no recipe 'too-blunt'"),
        (("too-sharp", "--only", "fig9"), "no part 'fig9'"),
    ):
        result = reproduce(*words)
        assert result.exit_code == 2 and said in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.slow
def test_gamma_net_end_to_end(tmp_path):
    result = reproduce("gamma-net", "--quick", "--out", tmp_path, "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    table = record["parts"]["table"]["tables"][0]
    column = {row[0]: dict(zip(table["header"], row, strict=True)) for row in table["rows"]}
    assert column.keys() == {
        "CE",
        "focal",
        "FLSD-53",
        "CE + 0.5 SECE",
        "gamma-net, not learning",
        "gamma-net + SECE",
    }
    extra = 64 * 2 + 64 * 128 + 128 + 128 + 1  # LayerNorm, hidden, last
    sizes = {name: int(each["parameters"].replace(",", "")) for name, each in column.items()}
    assert sizes["gamma-net + SECE"] - sizes["CE"] == extra
    features = record["parts"]["features"]["tables"][0]["rows"]
    assert [row[0] for row in features] == ["penultimate", "layer2", "random", "noise"]
    assert len(record["parts"]["bandwidth"]["tables"][0]["rows"]) == 3
    assert len(record["parts"]["backbones"]["tables"][0]["rows"]) == 4
