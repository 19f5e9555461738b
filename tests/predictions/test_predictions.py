"""Files of predictions: each kind read back as saved, each fault refused in one line."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from toosure.predictions import from_confidence, from_logits, from_probs, read_predictions
from toosure.predictions.writing import write_predictions

LOGITS = np.array([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
LABELS = np.array([0, 2, 2, 1])
CORRECT = [True, False, True, False]


def refused(path, words, **options):
    """The one line that refuses a file."""
    with pytest.raises(ValueError, match=words) as caught:
        read_predictions(path, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(path.name)


def csv_file(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def rows_of(scores, labels):
    return [[*map(repr, map(float, row)), label] for row, label in zip(scores, labels, strict=True)]


def npz_file(path, **arrays):
    np.savez(path, **arrays)
    return path


def parquet_file(path, **columns):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_npz_of_each_kind_agrees(tmp_path):
    top = PROBS.max(1)
    files = {
        "logits": npz_file(tmp_path / "a.npz", logits=LOGITS, labels=LABELS),
        "probs": npz_file(tmp_path / "b.npz", probs=PROBS, labels=LABELS.astype(np.uint8)),
        "confidence": npz_file(tmp_path / "c.npz", confidence=top, correct=CORRECT),
    }
    for kind, path in files.items():
        predictions = read_predictions(path)
        assert (predictions.kind, predictions.n, predictions.source) == (kind, 4, path.name)
        np.testing.assert_allclose(predictions.confidence, top, rtol=1e-14)
        assert predictions.correct.tolist() == CORRECT


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, ">f4"])
def test_float_types_and_byte_order(tmp_path, dtype):
    path = npz_file(tmp_path / "a.npz", logits=LOGITS.astype(dtype), labels=LABELS)
    np.testing.assert_allclose(read_predictions(path).confidence, PROBS.max(1), rtol=1e-3)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"logits": 3.0, "labels": LABELS}, "logits must be an array, a row for each example"),
        ({"logits": LOGITS, "labels": 3}, "labels must be an array, one for each row"),
        ({"logits": LOGITS[:, :0], "labels": LABELS}, r"logits are empty: got shape \(4, 0\)"),
        ({"logits": LOGITS, "labels": LABELS + 1e30}, "must be class numbers; got 1e.30 in row 0"),
        ({"logits": LOGITS, "labels": [2**62] * 4}, r"in \[0, 3\); got 4611686018427387904"),
    ],
)
def test_arrays_that_are_none(tmp_path, arrays, words):
    refused(npz_file(tmp_path / "a.npz", **arrays), words)


def test_split_chooses_the_prefix(tmp_path):
    path = npz_file(
        tmp_path / "a.npz",
        val_logits=-LOGITS, val_labels=LABELS, test_logits=LOGITS, test_labels=LABELS,
    )  # fmt: skip
    assert read_predictions(path, split="test").correct.tolist() == CORRECT
    refused(path, "no array 'logits'; it holds .*choose --split test or val")
    refused(path, "no array 'train_logits'; .*choose --split test or val", split="train")


def test_two_kinds_in_one_file_need_a_choice(tmp_path):
    path = npz_file(tmp_path / "a.npz", logits=LOGITS, probs=PROBS, labels=LABELS)
    refused(path, "holds logits and probs: choose one with --kind")
    assert read_predictions(path, "probs").kind == "probs"


def test_a_confidence_rounded_above_one_is_one():
    predictions = from_probs([[1.0005, 0.0], [0.5, 0.5]], [0, 1])
    assert predictions.confidence.tolist() == [1, 0.5]
    assert predictions.probs.max() == 1


def test_zero_probability_is_minus_infinity_and_never_nan(tmp_path):
    probs = np.array([[1.0, 0.0], [0.5, 0.5]])
    predictions = read_predictions(npz_file(tmp_path / "a.npz", probs=probs, labels=[1, 0]))
    assert predictions.logits[0].tolist() == [0, -np.inf]
    np.testing.assert_array_equal(predictions.logits.softmax(1), probs)


def test_csv_by_name_and_by_number(tmp_path):
    names = ['"a,b"', "dog", "<i>"]
    by_name = csv_file(
        tmp_path / "a.csv",
        ",".join([*names, "label"]),
        rows_of(LOGITS, ['"a,b"', "<i>", "<i>", "dog"]),
    )
    by_number = csv_file(tmp_path / "b.csv", "x,y,z,label", rows_of(LOGITS, LABELS))
    assert read_predictions(by_name).names == ("a,b", "dog", "<i>")
    for path in (by_name, by_number):
        predictions = read_predictions(path)
        assert predictions.kind == "logits"
        np.testing.assert_array_equal(predictions.logits, LOGITS)
        assert predictions.labels.tolist() == LABELS.tolist()


def test_numbered_columns_are_names_first(tmp_path):
    path = csv_file(tmp_path / "a.csv", "1,2,3,label", rows_of(LOGITS, LABELS + 1))
    assert read_predictions(path).labels.tolist() == LABELS.tolist()


def test_blanks_around_names_do_not_matter(tmp_path):
    path = csv_file(tmp_path / "a.csv", " x, y ,z, label ", rows_of(LOGITS, ["x ", " z", "z", "y"]))
    predictions = read_predictions(path)
    assert (predictions.names, predictions.labels.tolist()) == (("x", "y", "z"), LABELS.tolist())


def test_csv_kind_is_told_or_asked(tmp_path):
    assert read_predictions(csv_file(tmp_path / "a.csv", "x,y,z,label", rows_of(PROBS, LABELS)))
    path = csv_file(tmp_path / "b.csv", "x,y,z,label", rows_of(PROBS * 1.1, LABELS))
    refused(path, "row 0 sums to 1.1, and probabilities sum to 1 to within 0.001")
    assert read_predictions(path, "logits").kind == "logits"


def test_csv_confidence(tmp_path):
    rows = [(0.9, "True"), (0.8, "false"), (0.7, 1), (0.6, 0)]
    predictions = read_predictions(csv_file(tmp_path / "a.csv", "confidence,correct", rows))
    assert (predictions.kind, predictions.correct.tolist()) == ("confidence", CORRECT)
    assert predictions.confidence.tolist() == [0.9, 0.8, 0.7, 0.6]
    refused(csv_file(tmp_path / "b.csv", "confidence,correct", [(0.9, "maybe")]), "got 'maybe'")


def test_csv_with_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfx,y,label\r\n1,-2,x\r\n0,-1,y\r\n")
    assert read_predictions(path).correct.tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n", "no column 'label'; it holds nothing"),
        ("x,y,label\n", "empty"),
        ("x,z\n1,2\n", "no column 'label'; it holds x, z: .*--label-column NAME"),
        ("label\n1\n", "no column of a class"),
        (
            "x,y,label\n1,oops,0\n1,2,0\n1,2,0\n",
            "'y' holds 'oops' in row 0 .line 2 of a .csv.: numbers",
        ),
        ("x,y,label\n1,oops,0\n", "one column of numbers, 'x', beside the label"),
        ("x,y,label\n1,-1,0\n2\n", "cannot be read as .csv"),
        ("x,y,label\n-1,1,cat\n", "class column's name or an integer in \\[0, 2\\); got 'cat'"),
        ("x,y,label\n-1,1,2\n", "labels must be integers in \\[0, 2\\); got 2 to 2"),
        ("x,y,label\n-1,1,0.5\n", "got '0.5'"),
        ("x,y,label\n-1,nan,0\n", "misses 1 of 1 values, the first in row 0"),
        ("x,x,label\n-1,1,0\n", "two columns of one name"),
        ("x,y,label\n-1,1,0\n2,-1,0\n1,0\n", "line 4 has 2 cells and the header 3\\)$"),
        ("# by me\nx,y,label\n-1,1,0\n", "the header 1: the first line begins with # .*delete it"),
        (
            "x,y,age,label\n-1,.1,30,0\n2,-.1,40,1\n1.5,.2,50,0\n",
            "'age'.*--columns x,y",
        ),
        ("y_true,y_pred\n0,1\n1,1\n", "no column of a class"),
        (
            "label,target,p_a,p_b\n0,0,.5,.5\n",
            "label and target may all be labels",
        ),
        (
            "p_yes,p_no,label\n.9,.1,1\n.2,.8,0\n",
            "0 would be yes: if 1 is yes, say --columns p_no,p_yes; else --classes yes,no",
        ),
        ("p_a,p_b,p_c,label\n.33,.33,.33,a\n", "look like rounded probabilities; write more"),
        ("p_a,p_b,label\n.9,.1,a\n.2,.8,\n.2,.8,nan\n", "2 rows have no label, .* row 1 .line 3"),
        (
            "p_Cat,p_dog,label\n.9,.1,cat\n.2,.8,dog\n",
            "label 'cat' is not 'Cat': make them the same",
        ),
        (
            "p_cat,p_dog,label\n.9,.1,cat\n.2,.8,-1\n",
            "label -1 is none of the classes cat, dog: .*--ignore-index -1",
        ),
        ("7,.9,.1,cat\n8,.2,.8,dog\n", "add a first line such as id,p_A,p_B,label, with your"),
        ("1.0,0.0,cat\n.2,.8,dog\n", "add a first line such as p_A,p_B,label, with your"),
        ("0.0,0.0,1.0,cat\n.2,.8,0,dog\n", "add a first line such as p_A,p_B,p_C,label"),
        ("id,0.5,1.0,stars\n7,.9,.1,.5\n", "no column 'label'; it holds id, 0.5, 1.0, stars: say"),
        ("7,.9,.1,0\n8,.2,.8,1\n", "add a first line such as id,p_0,p_1,label."),
        (
            "a_x,a_y,b_x,b_y,label\n.9,.1,.8,.2,x\n",
            "scores of 2 models: .* --columns 'a_\\*' or --columns 'b_\\*'",
        ),
        (
            "p_x_1,p_y_1,p_x_2,p_y_2,label\n.9,.1,.8,.2,x\n",
            "scores of 2 models: .* --columns '\\*_1' or --columns '\\*_2'",
        ),
        ("label,p_a,p_b,logit_a,logit_b\n0,2,.5,1,-1\n", "p_a, logit_a may all begin the scores"),
    ],
)
def test_csv_faults(tmp_path, text, words):
    path = tmp_path / "a.csv"
    path.write_text(text)
    refused(path, words)


def test_parquet(tmp_path):
    columns = {f"c{i}": PROBS[:, i] for i in range(3)}
    predictions = read_predictions(parquet_file(tmp_path / "a.parquet", **columns, label=LABELS))
    assert (predictions.kind, predictions.names) == ("probs", ("c0", "c1", "c2"))
    assert predictions.correct.tolist() == CORRECT
    words = np.array(["c0", "c2", "c2", "c1"])
    by_name = read_predictions(parquet_file(tmp_path / "b.parquet", **columns, label=words))
    assert by_name.labels.tolist() == LABELS.tolist()
    words_only = parquet_file(tmp_path / "c.parquet", c0=words, c1=words, label=LABELS)
    refused(words_only, "no column of a class; it holds only c0, c1, label")
    holes = parquet_file(tmp_path / "e.parquet", **columns, label=[0, None, 2, 1])
    refused(holes, "1 row has no label, row 1")
    (tmp_path / "d.parquet").write_bytes(b"no parquet")
    refused(tmp_path / "d.parquet", "cannot be read as .parquet")


def test_parquet_categories(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    label = arrow.array(["b", "a"]).dictionary_encode()
    path = parquet_file(tmp_path / "a.parquet", a=[0.0, 1.0], b=[-1.0, 2.0], label=label)
    assert read_predictions(path).labels.tolist() == [1, 0]


def test_pt_is_tensors_and_nothing_else(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"logits": torch.tensor(LOGITS), "labels": torch.tensor(LABELS)}, path)
    assert read_predictions(path).correct.tolist() == CORRECT
    torch.save({"logits": torch.tensor(LOGITS).to_sparse(), "labels": torch.tensor(LABELS)}, path)
    refused(path, "logits must be dense")
    torch.save(torch.tensor(LOGITS), path)
    refused(path, "must hold a dict of tensors; got Tensor")
    torch.save({"logits": torch.tensor(LOGITS) + 1j, "labels": torch.tensor(LABELS)}, path)
    refused(path, "logits must be numbers; got torch.complex128")
    torch.save({"logits": [[1.0, 2.0], [3.0]], "labels": [0, 1]}, path)
    refused(path, "logits has rows of different lengths")
    torch.save({"logits": torch.tensor(LOGITS) > 0, "labels": torch.tensor(LABELS)}, path)
    refused(path, "logits are true or false: save logits or probabilities")
    torch.save({"logits": Trap()}, path)
    refused(path, "refused: holds more than tensors")
    assert not Trap.sprung
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-3], bytes(3000), b"PK", b"not torch"):
        path.write_bytes(content)
        refused(path, r"cannot be read as .pt \((damaged, or not written by|refused: )")


def test_a_pt_with_other_bytes_than_were_written_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    tensors = {"logits": torch.tensor(LOGITS), "labels": torch.tensor(LABELS)}
    torch.save(tensors, path)
    content = bytearray(path.read_bytes())
    content[content.index(tensors["logits"].numpy().tobytes()) + 2] ^= 0x40
    path.write_bytes(content)
    assert not torch.load(path)["logits"].equal(tensors["logits"])  # torch reads other numbers
    refused(path, "damaged, other bytes than were written: write it again")

    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=LABELS)
    shutil.copy(tmp_path / "a.npz", path)
    refused(path, "written by np.savez: call it .npz")

    # torch can leave checksums out.
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(tensors, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_predictions(path).correct.tolist() == CORRECT


def test_narrow_tensors_and_lists(tmp_path):
    """float8 is only to be kept, and NumPy has no bfloat16."""
    path = tmp_path / "a.pt"
    labels = torch.tensor(LABELS, dtype=torch.bfloat16)
    weights = torch.ones(4, dtype=torch.bfloat16)
    for scores in (torch.tensor(LOGITS).to(torch.float8_e4m3fn), LOGITS.tolist()):
        torch.save({"logits": scores, "labels": labels, "weight": weights}, path)
        predictions = read_predictions(path)
        assert predictions.correct.tolist() == CORRECT
        assert predictions.extras["weight"].tolist() == [1.0] * 4


class Trap:
    """An object whose unpickling would run code."""

    sprung = False

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung = True


def test_unreadable_files(tmp_path):
    refused(tmp_path / "none.npz", "no such file")
    refused(tmp_path / "none.csv", "no such file")
    refused(tmp_path / "no_folder", "no such file or run folder")
    for content in (b"", b"PK\x03\x04 cut short", b"text"):
        (tmp_path / "a.npz").write_bytes(content)
        refused(tmp_path / "a.npz", "cannot be read as .npz")
    refused(tmp_path / "a.npz", "not an archive of arrays")  # text, not a pickle to be trusted
    for suffix in (".npz", ".pt", ".csv", ".jsonl", ".parquet"):
        (tmp_path / f"empty{suffix}").touch()
        refused(tmp_path / f"empty{suffix}", f"cannot be read as {suffix} .the file is empty")
        (tmp_path / f"folder{suffix}").mkdir()
        refused(tmp_path / f"folder{suffix}", "is a folder, and a file is needed")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "predictions.npz").touch()
    refused(tmp_path / "run", "a file is needed: give .*run/predictions.npz and a --split")
    torch.save({"logits": torch.tensor(LOGITS)}, tmp_path / "t.npz")
    refused(tmp_path / "t.npz", "written by torch.save: call it .pt")
    (tmp_path / "latin.csv").write_bytes("größe,label\n0.5,1\n".encode("latin-1"))
    refused(tmp_path / "latin.csv", "no text in UTF-8 from byte 2 on: save it as UTF-8")
    np.savez(tmp_path / "o.npz", logits=np.array([{}]), labels=LABELS)
    refused(tmp_path / "o.npz", "logits holds Python objects, which are not read")
    (tmp_path / "a.doc").write_text("x")
    refused(tmp_path / "a.doc", "save .npz, .npy, .pt, .csv, .jsonl or .parquet")
    np.save(tmp_path / "a.npy", LOGITS)
    (tmp_path / "a.npy").rename(tmp_path / "b.npz")
    refused(tmp_path / "b.npz", "one array without a name")


def test_kind_that_contradicts_the_file(tmp_path):
    path = npz_file(tmp_path / "a.npz", logits=LOGITS, labels=LABELS)
    refused(path, "no array 'probs'; it holds labels, logits", kind="probs")
    refused(path, "no array 'confidence'", kind="confidence")
    for rounded in (PROBS, PROBS.astype(np.float16), PROBS.round(4), PROBS.round(3)):
        path = npz_file(tmp_path / "b.npz", logits=rounded, labels=LABELS)
        refused(path, "logits are probabilities")
    refused(npz_file(tmp_path / "c.npz", probs=LOGITS, labels=LABELS), "row 0 holds -1")
    refused(npz_file(tmp_path / "d.npz", logits=LOGITS), "no array 'labels'")
    table = csv_file(tmp_path / "e.csv", "x,y,z,label", rows_of(PROBS, LABELS))
    refused(table, "logits are probabilities", kind="logits")
    refused(table, "no column 'correct'", kind="confidence")
    refused(table, "a table has none", split="test")


@pytest.mark.parametrize(
    ("take", "first", "second", "words"),
    [
        (from_probs, [[0.5, 0.4]], [0], "row 0 sums to 0.9"),
        (from_probs, [[1.2, -0.2]], [0], "row 0 holds -0.2"),
        (from_probs, [[0.5, 0.5], [np.nan, 1]], [0, 0], "row 1 sums to nan"),
        (from_probs, [0.5, 1.4], [0, 1], "P.class 1. and lie in"),
        (from_logits, [0.5, 0.4], [0, 1], "probs=p"),
        (from_probs, [0.5, 0.4], [0, 2], "one column per class"),
        (from_probs, [[0.5, 0.5]], [2], "got 2 to 2"),
        (from_logits, [[1.0, np.inf]], [0], "row 0 of 1 holds NaN or infinity"),
        (from_logits, [[1.0, 2.0]], [0.0], "got float64"),
        (from_logits, [[1.0, 2.0]], [[0]], "shape"),
        (from_logits, [["a", "b"]], [0], "logits must be numbers"),
        (from_logits, np.zeros((0, 3)), np.zeros(0, int), "empty"),
        (from_confidence, [1.5], [1], "in .0, 1.; got 1.5"),
        (from_confidence, [np.nan], [1], "row 0 of 1 holds NaN"),
        (from_confidence, [0.5], [2], "0 or 1"),
        (from_confidence, [0.5], [1, 0], "shape"),
        (from_confidence, [], [], "N > 0"),
    ],
)
def test_faulty_values(take, first, second, words):
    with pytest.raises(ValueError, match=words):
        take(first, second)


def test_log_probs_are_logits(tmp_path):
    logs = np.log(PROBS)
    path = npz_file(tmp_path / "a.npz", log_probs=logs, labels=LABELS)
    predictions = read_predictions(path)
    assert predictions.kind == "logits" and "from 'log_probs'" in predictions.note
    assert predictions.confidence.numpy() == pytest.approx(PROBS.max(1))

    split = npz_file(tmp_path / "c.npz", test_log_probs=logs, test_labels=LABELS)
    assert read_predictions(split, split="test").correct.tolist() == CORRECT
    refused(split, "it holds test_labels, test_log_probs")
    wrong = npz_file(tmp_path / "d.npz", log_probs=LOGITS, labels=LABELS)  # the name is not true
    refused(wrong, "log_probs are not log-probabilities: of exp.log_probs., row 0 sums to 9.4")


def test_a_split_is_proposed_only_with_its_truth(tmp_path):
    path = npz_file(tmp_path / "a.npz", my_logits=LOGITS, labels=LABELS)
    refused(path, "it holds labels, my_logits: name the scores .*--columns NAME")
    assert read_predictions(path, columns=["my_logits"]).correct.tolist() == CORRECT
    path = npz_file(tmp_path / "b.npz", val_logits=LOGITS, val_labels=LABELS)
    refused(path, "choose --split val$")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0.5, 0.48, 0]], "row 0 sums to 0.98, .* to within 0.001; independent labels are for"),
        ([[0.5, 2.48, 0]], "row 0 sums to 2.98, .*; if these are logits, say --kind logits"),
        ([[0.5, np.nan, 0]], r"column 'y' misses 1 of 1 values, .*: drop such rows, or name"),
        ([[50, 25, 25]], "these are percentages; divide them by 100"),
    ],
)
def test_a_table_of_no_known_kind_says_what_it_is(rows, words, tmp_path):
    refused(csv_file(tmp_path / "a.csv", "x,y,z,label", rows_of(np.array(rows), [0])), words)


def test_a_table_of_one_column_of_probabilities(tmp_path):
    path = csv_file(tmp_path / "a.csv", "x,label", [[0.7, 1], [0.2, 0]])
    refused(path, "one column of numbers, 'x', beside the label 'label'.*--columns x")
    assert read_predictions(path, columns=["x"]).binary


def test_one_output_per_example_is_a_binary_classifier():
    z = np.array([2.0, -1.0, 0.5])
    labels = np.array([True, False, False])
    for given in (z, z[:, None]):
        predictions = from_logits(given, labels)
        assert predictions.binary and predictions.logits.tolist() == [[0, 2.0], [0, -1], [0, 0.5]]
        assert predictions.labels.tolist() == [1, 0, 0]
        assert predictions.correct.tolist() == [True, True, False]

    p = 1 / (1 + np.exp(-z))
    predictions = from_probs(p, labels[:, None])
    assert predictions.binary and predictions.probs[:, 1].tolist() == p.tolist()
    assert not from_probs(np.stack([1 - p, p], 1), labels.astype(int)).binary


def test_other_columns_are_written_as_they_were(tmp_path):
    texts = np.array(["é", "b"])
    extras = {
        "bytes": np.char.encode(texts, "utf-8"),
        "day": np.array(["2020-01-01", "2021-02-03"], dtype="M8[D]"),
        "large": np.array([2**63, 1], dtype=np.uint64),
        "object": texts.astype(object),
    }
    rows = replace(from_probs(np.array([[0.2, 0.8], [0.6, 0.4]]), [1, 0]), extras=extras)
    write_predictions(rows, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert all((arrays[name] == extras[name]).all() for name in extras)

    write_predictions(rows, tmp_path / "a.pt")
    content = torch.load(tmp_path / "a.pt", weights_only=True)
    assert content["bytes"] == content["object"] == ["é", "b"]
    assert content["day"][0] == "2020-01-01" and content["large"] == [str(2**63), "1"]
