"""Rows of equal keys are read fast, and to the same numbers as any others."""

import json

import numpy as np
import pytest

from toosure.runs import Run, find_runs, read_together
from toosure.runs.row_reader import UNIFORM_BYTES, RowReader
from toosure.runs.uniform_rows import uniform_rows


def lines_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def many_rows(count=2500, seed=0):
    generator = np.random.default_rng(seed)
    values = generator.normal(0, 10.0 ** generator.integers(-12, 12, (count, 4)))
    keys = ("val/ece", "train/margin_q01", "odd, {key}: é", "e")
    return [
        {"step": i, **dict(zip(keys, map(float, row), strict=True))} for i, row in enumerate(values)
    ]


def slowly(file):
    """Read a file row by row."""
    reader = RowReader(file)
    reader._next_uniform_rows = lambda lines, are_many: {}
    reader.refresh()
    return reader


def test_numbers_are_the_same_to_the_last_bit(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(lines_of(many_rows()))
    fast = RowReader(file)
    assert fast.refresh() and file.stat().st_size > UNIFORM_BYTES
    slow = slowly(file)
    assert fast.columns.keys() == slow.columns.keys() and fast.count == slow.count == 2500
    for key, values in slow.columns.items():
        np.testing.assert_array_equal(fast.columns[key], values)
    assert fast.last == slow.last and fast.rows == slow.rows


@pytest.mark.parametrize(
    "odd",
    [
        *('{"step": 7, "val/ece": null, "train/margin_q01": 1, "odd, {key}: é": 1, "e": 1}',),
        *('{"step": 7, "val/ece": 1}', '{"step": 7}', "", "no row", '{"step": 1e400}'),
        *(
            '{"step": 7, "val/ece": 1-2}',
            '{"step": "7"}',
            "[1, 2]",
            '{"a": 1}',
            '{"step": 7, "n": NaN}',
        ),
    ],
)
def test_an_odd_row_among_equal_ones_is_read_as_ever(tmp_path, odd):
    file = tmp_path / "metrics.jsonl"
    rows = many_rows(5000)
    file.write_text(lines_of(rows[:2500]) + odd + "\n" + lines_of(rows[2500:]) + '{"step": 9')
    fast, slow = RowReader(file), slowly(file)
    fast.refresh()
    assert fast.count == slow.count and fast.problem == slow.problem
    for key, values in slow.columns.items():
        np.testing.assert_array_equal(fast.columns[key], values)


def test_a_key_that_comes_later_was_nan_before(tmp_path):
    rows = [{"step": i, "a": 0.1} for i in range(1500)]
    rows += [{"step": i, "b": 0.5} for i in range(1500, 3000)]
    path = tmp_path / "r"
    path.mkdir()
    (path / "metrics.jsonl").write_text(lines_of(rows[:1500]))
    run = Run(path)
    assert run.refresh() and run.count == 1500
    with (path / "metrics.jsonl").open("a") as file:
        file.write(lines_of(rows[1500:]))
    assert run.refresh() and run.count == 3000
    assert np.isnan(run.columns["b"][:1500]).all() and (run.columns["b"][1500:] == 0.5).all()
    assert np.isnan(run.columns["a"][1500:]).all()


def test_the_parser_for_many_numbers_gives_the_same_bits():
    block = lines_of(many_rows(300)).encode() + b'{"step": 300, "val/ece": 5e-324, '
    block += (
        '"train/margin_q01": -1.7976931348623157e308, "odd, {key}: é": 0.1, "e": 1E+5}\n'.encode()
    )
    few = uniform_rows(block.replace(b"\\u00e9", "é".encode()))
    many = uniform_rows(block.replace(b"\\u00e9", "é".encode()), are_many=True)
    np.testing.assert_array_equal(many.values, few.values)
    assert few.values[-1].tolist() == [300.0, 5e-324, -1.7976931348623157e308, 0.1, 1e5]
    assert many.values.dtype == np.float64 and len(few.values) == 301


@pytest.mark.parametrize("are_many", [False, True])
@pytest.mark.parametrize(
    "number", ["1-2", "1.2.3", "1e", "1e5e5", "--1", "+5", "1 2", "", ".5", "5.", "1e999"]
)
def test_what_is_no_number_is_not_read_as_one(number, are_many):
    block = b'{"step": 0, "a": 11, "b": 2}\n' + f'{{"step": 1, "a": {number}, "b": 2}}\n'.encode()
    assert uniform_rows(block, are_many) is None


def test_a_number_that_moved_to_its_neighbour_is_not_read():
    block = b'{"step": 0, "a":1 ,"b":2}\n{"step": 1, "a":1 2,"b":}\n'
    assert uniform_rows(block) is None


def test_numbers_without_blanks_are_read():
    rows = uniform_rows(b'{"step":0,"a":1}\n{"step":10,"a":2}\n', are_many=True)
    assert rows.values.tolist() == [[0, 1], [10, 2]]


def test_what_is_not_uniform_is_not_read():
    assert uniform_rows(b'{"step": 0, "a": "x"}\n{"step": 1, "a": "y"}\n') is None
    assert uniform_rows(b'{"step": 0}\n{"step": 1e999}\n') is None
    assert uniform_rows(b'{"step": 0}\n{"stop": 1}\n') is None
    assert uniform_rows(b"{}\n{}\n") is None
    assert uniform_rows(b'{"step": 0, "step": 1}\n') is None
    assert uniform_rows(b'{"step": 0}\n\n{"step": 1}\n') is None


def test_two_processes_read_what_one_does(tmp_path, monkeypatch):
    for number in range(5):
        path = tmp_path / f"r{number}"
        path.mkdir()
        (path / "metrics.jsonl").write_text(lines_of(many_rows(30 + number, seed=number)))
    (tmp_path / "r2" / "metrics.jsonl").write_text("no row\n")
    monkeypatch.setattr(read_together, "MIN_BYTES", 0)
    monkeypatch.setattr(read_together, "BYTES_AT_START", 0)
    monkeypatch.setattr(read_together.os, "cpu_count", lambda: 2)
    together = find_runs(tmp_path)
    read_together.read_together(together)
    assert all("_reader" in run.__dict__ for run in together)
    for run, alone in zip(together, find_runs(tmp_path), strict=True):
        assert run.count == alone.count and run.last == alone.last and run.damage == alone.damage
        for key, values in alone.columns.items():
            np.testing.assert_array_equal(run.columns[key], values)


def test_rows_are_read_here_where_the_second_process_fails(tmp_path, monkeypatch):
    for number in range(2):
        path = tmp_path / f"r{number}"
        path.mkdir()
        (path / "metrics.jsonl").write_text(lines_of(many_rows(20)))
    monkeypatch.setattr(read_together, "MIN_BYTES", 0)
    monkeypatch.setattr(read_together, "BYTES_AT_START", 0)
    monkeypatch.setattr(read_together.sys, "executable", "false")
    runs = find_runs(tmp_path)
    read_together.read_together(runs)
    assert [run.count for run in runs] == [20, 20]


def test_the_process_that_is_there_reads_more_than_the_one_that_must_start(tmp_path, monkeypatch):
    for number in range(3):
        path = tmp_path / f"r{number}"
        path.mkdir()
        (path / "metrics.jsonl").write_text(lines_of(many_rows(20)))
    asked = []
    monkeypatch.setattr(read_together, "MIN_BYTES", 0)
    monkeypatch.setattr(read_together.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(read_together.subprocess, "Popen", lambda *command, **_: asked.append(1))
    runs = find_runs(tmp_path)
    read_together.read_together(runs)  # all is read here before a second process would have begun
    assert asked == [] and [run.count for run in runs] == [20, 20, 20]


def test_the_parser_has_one_thread_where_two_processes_read():
    from threadpoolctl import threadpool_info

    def threads():
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "scipy"}

    with read_together.one_thread():
        assert threads() <= {1}
