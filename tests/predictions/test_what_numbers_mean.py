"""What numbers in a file mean, whichever of them occur: labels as names, logits in [0, 1]."""

import numpy as np
import pytest
import torch

from toosure.predictions import from_frame, from_logits, read_predictions

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.3, 0.5, 0.2]])
Z = np.array([0.1, 0.9, 0.4, 0.6])


def table(names, labels, rows=slice(None)):
    columns = dict(zip(names, PROBS.T[:, rows], strict=True))
    return columns | {"label": np.array(labels)[rows]}


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["p_0", "p_1", "p_2"], [0, 1, 2, 1]),
        (["class_1", "class_2", "class_3"], [1, 2, 3, 2]),
        (["p_0", "p_1", "p_3"], [0, 1, 3, 1]),
        (["p_-1", "p_0", "p_1"], [-1, 0, 1, 0]),
        (["p_1.0", "p_2.0", "p_3.0"], [1, 2, 3, 2]),
        (["p_a", "p_b", "p_c"], [0, 1, 2, 1]),
        (["p_a", "p_b", "p_c"], list("abcb")),
        (["0.5", "1.0", "1.5"], ["0.5", "1.0", "1.5", "1.0"]),  # half stars
        (["nan", "inf", "c"], ["nan", "inf", "c", "inf"]),
        (["p_class_1", "p_class_2", "p_class_3"], [1.0, 2.0, 3.0, 2.0]),
    ],
)
def test_labels_are_names_of_columns(tmp_path, names, labels):
    assert from_frame(table(names, labels)).labels.tolist() == [0, 1, 2, 1]
    rows = [names, *PROBS.tolist()]
    ends = ["label", *labels]
    lines = [",".join(map(str, [*row, end])) for row, end in zip(rows, ends, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert read_predictions(tmp_path / "a.csv").labels.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("names", "labels", "words"),
    [
        (["p_1", "p_2", "p_3"], [0, 1, 2, 1], "label 0 is none of .* say --classes 0,1,2$"),
        (["p_0", "p_1", "p_3"], [0, 1, 2, 1], "label 2 is none of .* say --classes 0,1,2$"),
        (["p_1", "p_2", "p_3"], [1, 2, 9, 1], "label 9 is none of the classes 1, 2, 3: drop such"),
        (["p_1", "p_2", "p_3"], [1, 2, -1, 3], "if -1 marks rows without .*--ignore-index -1"),
        (["p_1", "p_2", "p_3"], ["1", "2", "x", "3"], "got 'x', and the classes are 1, 2, 3"),
    ],
)
def test_numbers_that_name_no_column(names, labels, words):
    with pytest.raises(ValueError, match=words):
        from_frame(table(names, labels))


def test_numbers_that_could_be_names_or_positions(tmp_path):
    """Rows 1 and 3 alone: labels 1 and 2 name columns, and could number them as well."""
    names = ["p_1", "p_2", "p_3"]
    some = table(names, [0, 1, 0, 2], rows=[1, 3])
    with pytest.raises(ValueError, match=r"say --classes 1,2,3 for names, --classes 0,1,2 for"):
        from_frame(some)
    by_name = from_frame(some, classes=["1", "2", "3"])
    assert by_name.labels.tolist() == [0, 1] and "by name: 1 is the first class" in by_name.note
    assert from_frame(some, classes=["0", "1", "2"]).labels.tolist() == [1, 2]
    with pytest.raises(ValueError, match="label 0 is none of the classes 1, 2, 3: drop"):
        from_frame(table(names, [0, 1, 2, 1]), classes=["1", "2", "3"])

    # What means the same either way is not asked for.
    assert from_frame(table(["p_0", "p_1", "p_3"], [0, 1, 1, 0])).labels.tolist() == [0, 1, 1, 0]
    # So it is with names that an array file holds.
    np.savez(tmp_path / "a.npz", probs=PROBS, labels=[1, 2, 2, 1], class_names=list("123"))
    with pytest.raises(ValueError, match=r"^a\.npz: labels 1, 2 may be the names"):
        read_predictions(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", probs=PROBS, labels=[1, 2, 3, 1], class_names=list("123"))
    assert read_predictions(tmp_path / "a.npz").note == "labels by name: 1 is the first class"


def test_scores_without_labels_need_no_reading_of_labels(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("p_1,p_2,p_3\n.5,.3,.2\n.1,.1,.8\n")
    assert read_predictions(path, unlabelled=True).note.endswith("p_1, p_2, p_3, no labels")
    np.savez(tmp_path / "a.npz", probs=PROBS, class_names=list("123"))
    assert read_predictions(tmp_path / "a.npz", unlabelled=True).names == ("1", "2", "3")

    path.write_text("p_sick\n0.2\n0.7\n")
    with pytest.raises(ValueError, match=r"one column of numbers, 'p_sick': if it is the prob"):
        read_predictions(path, unlabelled=True)


@pytest.mark.parametrize("name", ["logit", "logits", "logit_1"])
def test_one_column_called_logit_holds_logits(tmp_path, name):
    """Also where all lie in [0, 1]: its name is believed, and the doubt is said."""
    labels = [0, 1, 0, 1]
    frame = {name: Z, "label": labels}
    read = from_frame(frame, columns=[name])
    torch.testing.assert_close(read.logits[:, 1], torch.tensor(Z))
    assert read.note.endswith(f"if they are probabilities, say --kind probs --columns {name}")
    assert from_frame(frame, columns=[name], kind="probs").kind == "probs"
    assert from_frame(frame, columns=name, kind="probs").kind == "probs"  # one without a list

    obeyed = from_frame({"score": Z, "label": labels}, kind="logits")
    assert obeyed.kind == "logits" and "[0, 1]" not in obeyed.note

    np.savez(tmp_path / "a.npz", logits=Z, labels=labels)
    stored = read_predictions(tmp_path / "a.npz")
    assert stored.binary and stored.note.startswith("all logits lie in [0, 1]")
    with pytest.raises(ValueError, match=r"all lie in \[0, 1\], as probabilities do"):
        from_logits(Z, labels)  # nobody named them


def test_one_column_of_log_probabilities_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"log_prob holds one number per row.* as prob$"):
        from_frame({"log_prob": np.log(Z), "label": [0, 1, 0, 1]})


def test_a_run_of_one_logit_is_read_as_one(tmp_path):
    """A watch keeps the one logit z of a binary model as two, [0, z]."""
    two = np.stack([np.zeros(4), 2 - 4 * Z], 1)
    np.savez(tmp_path / "predictions.npz", val_logits=two, val_labels=[0, 1, 0, 1])
    read = read_predictions(tmp_path / "predictions.npz", split="val")
    assert read.binary and read.note.endswith("0 in every row: one logit of class 1")
    np.savez(tmp_path / "predictions.npz", val_logits=two + 1, val_labels=[0, 1, 0, 1])
    assert not read_predictions(tmp_path / "predictions.npz", split="val").binary


def test_arrays_of_which_nothing_is_made_are_named(tmp_path):
    rows = {"groups": [1, 1, 2, 2], "weights": Z}
    np.savez(tmp_path / "a.npz", probs=PROBS, labels=[0, 1, 2, 1], **rows)
    assert read_predictions(tmp_path / "a.npz").note == "left out groups, weights"


def test_columns_that_labels_name_come_before_a_score():
    bare = dict(zip("abc", PROBS.T, strict=True))
    read = from_frame(bare | {"label": list("abca"), "age": [31, 40, 55, 62], "score": Z})
    assert read.names == ("a", "b", "c") and read.note.endswith("left out age, score")


def test_a_measurement_beside_logits_is_no_class():
    """Three columns are named as the labels are; whether `age` is a fourth class nobody knows."""
    logits = {f"{name}": row for name, row in zip("abc", np.log(PROBS.T), strict=True)}
    columns = {"label": np.array(list("abcb")), **logits, "age": np.array([2.5, 3.0, 4.0, 1.0])}
    with pytest.raises(ValueError, match=r"column 'age' is none of .*a,b,c,age; else .* a,b,c$"):
        from_frame(columns)
    for told in ({"columns": ["a", "b", "c"]}, {"classes": ["a", "b", "c"]}):
        assert from_frame(columns, **told).logits.shape == (4, 3)

    numbered = dict(zip("012", np.log(PROBS.T), strict=True)) | {"label": np.array([0, 1, 0, 1])}
    assert from_frame(numbered).logits.shape == (4, 3)  # 2 is a class, though no row has it
    with pytest.raises(ValueError, match="column 'age' is none of the labels 0, 1, 2"):
        from_frame(numbered | {"age": columns["age"]})


def test_one_column_of_class_0():
    frame = {"p_0": 1 - Z, "label": [0, 1, 0, 1]}
    with pytest.raises(ValueError, match=r"of class 0: if it is, say --classes 1,0; if it is that"):
        from_frame(frame)
    read = from_frame(frame, classes=["1", "0"])
    assert read.names == ("1", "0") and read.labels.tolist() == [1, 0, 1, 0]
    assert from_frame(frame, columns=["p_0"]).labels.tolist() == [0, 1, 0, 1]


def test_yes_and_no_behind_the_name_of_a_model_are_read_as_without_it():
    probs = {"1": 1 - Z, "0": Z}
    true = [True, False, True, False]
    for labels in (true, ["yes", "no", "yes", "no"]):
        read = from_frame({f"rf_{name}": p for name, p in probs.items()} | {"label": labels})
        assert read.labels.tolist() == [1, 0, 1, 0]
        np.testing.assert_allclose(read.probs[:, 1], 1 - Z)

    named = {"rf_yes": 1 - Z, "rf_no": Z}
    assert from_frame(named | {"label": ["Yes", "No", "Yes", "No"]}).labels.tolist() == [0, 1, 0, 1]
    for labels in ([1, 0, 1, 0], true):
        with pytest.raises(ValueError, match="so that 0 would be yes: if 1 is yes, say --columns"):
            from_frame(named | {"label": labels})
    with pytest.raises(ValueError, match="got 1 to 2: if they count from 1, say --classes 1,2"):
        from_frame(named | {"label": [1, 2, 1, 2]})
