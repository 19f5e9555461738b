"""Files as people have them: a guess is right and said in one line, or there is a remedy."""

import json

import numpy as np
import pytest
import torch

from toosure.predictions import from_frame, npy_pair, read_predictions, take_rows
from toosure.predictions.writing import write_predictions

LOGITS = np.array([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
LABELS = np.array([0, 2, 2, 1])
CORRECT = [True, False, True, False]
P1 = np.array([0.9, 0.2, 0.6, 0.4])  # of class 1
SPAM = ("ham", "spam")
Y = np.array([1, 0, 0, 1])


def table(path, columns, separator=","):
    rows = zip(*columns.values(), strict=True)
    lines = [separator.join(columns), *(separator.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def three(prefix="p_", names="abc"):
    return {f"{prefix}{name}": PROBS[:, k].tolist() for k, name in enumerate(names)}


def check(predictions, note=""):
    """The three-class rows of this file, read rightly."""
    assert predictions.labels.tolist() == LABELS.tolist()
    assert predictions.correct.tolist() == CORRECT
    np.testing.assert_allclose(predictions.confidence, PROBS.max(1), rtol=1e-12)
    assert note in predictions.note
    assert "\n" not in predictions.note


def test_hand_made_tables(tmp_path):
    """A label column of no usual name, decimal commas, yes and no, a header that is none."""
    path = tmp_path / "a.csv"
    path.write_text(
        "who;age;benign;malignant;diagnosis\nx;54;0,9;0,1;benign\ny;61;0,3;0,7;benign\n"
    )
    predictions = read_predictions(path)
    assert predictions.correct.tolist() == [True, False]
    assert predictions.note.endswith("labels from 'diagnosis', left out who, age")
    path.write_text(",prediction,score,truth\n0,1,0.91,yes\n1,0,0.12,no\n2,1,0.77,no\n")
    predictions = read_predictions(path)
    assert predictions.labels.tolist() == [1, 0, 0] and "column 'score'" in predictions.note
    assert "labels from 'truth' ('yes' is class 1)" in predictions.note
    for text, words in (
        ("0.9,0.1,0\n0.2,0.8,1\n", "the first line must name the columns"),
        ("0.5,0.5,0\n0.2,0.8,1\n", "the first line must name the columns"),
        ("pred,confidence,label\n1,0.8,1\n", "confidences need a column 'correct'"),
        ("class_name,class_group,label\nx,y,0\n", "no column of a class.*--columns"),
        ("p_a,p_b,label\n50%,50%,a\n", "'p_a' holds '50%' in row 0 .line 2.*write 0.5 for it"),
        ("label,prob\n1,93%\n0,12%\n", "holds '93%' in row 0 .line 2.*write 0.93 for it"),
        ("a,b,label\n.5,.5,a\n.1,,a\n.2,.8,b\n", "'b' misses 1 of 3 values.*row 1 .line 3.*--col"),
        ("p_a,p_b,label\n.5,.5,a\n.1,.9,c\n", "got 'c', and the classes are a, b: drop such rows"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            read_predictions(path)


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({**three(), "target": LABELS}, "read 3 probability columns p_a, p_b, p_c, labels from 't"),
        (
            {"id": [7, 8, 9, 10], **three(), "y": LABELS},
            "labels from 'y' (0 is a, 1 is b, and so on), left",
        ),
        ({**three("prob_"), "y_true": list("accb")}, "labels from 'y_true'"),
        ({**three("logit "), "label": LABELS}, "columns logit a"),
        ({**three("p"), "label": [0.0, 2.0, 2.0, 1.0]}, "columns pa, pb, pc"),
        ({**three("prob(", ["a)", "b)", "c)"]), "label": LABELS}, "prob(a)"),
        ({"": [0, 1, 2, 3], **three(""), "label": list("accb")}, "left out (a column without a"),
        ({"age": [31, 40, 55, 62], **three(""), "label": list("accb")}, "left out age"),
        ({"text": list("xyzw"), **three(), "pred": [0, 1, 2, 0], "gt": LABELS}, "text, pred"),
    ],
)
def test_tables(tmp_path, columns, note):
    check(read_predictions(table(tmp_path / "a.csv", columns)), note)


@pytest.mark.parametrize("form", ["%.1f", "%.6f", "%.18e"])
@pytest.mark.parametrize("comment", ["", "# "])
@pytest.mark.parametrize("prefix", ["p_", ""])
def test_tables_of_savetxt(tmp_path, form, comment, prefix):
    """All columns in one format, so that class 2 is 2.000000, under a header that is a comment."""
    path = tmp_path / "a.csv"

    def save(header, *columns):
        forms = ["%.15f"] * (len(columns) - 1) + [form]
        np.savetxt(path, np.transpose(columns), forms, ",", header=header, comments=comment)

    header = ",".join(f"{prefix}{k}" for k in range(3)) + ",label"
    save(header, *PROBS.T, LABELS)
    check(read_predictions(path), f"read 3 probability columns {prefix}0")
    save(header, *PROBS.T, [0, -100, 2, 1])
    ignored = read_predictions(path, ignore_index=-100)
    assert ignored.labels.tolist() == [0, 2, 1]

    save("y_score,y_true", P1, Y)
    assert read_predictions(path).labels.tolist() == Y.tolist()
    save("y_score,y_true", P1, 2 * Y - 1)
    assert read_predictions(path, classes=["-1", "1"]).labels.tolist() == Y.tolist()
    save("confidence,correct", PROBS.max(1), CORRECT)
    assert read_predictions(path).correct.tolist() == CORRECT

    save(header, *PROBS.T, LABELS + 0.5)
    with pytest.raises(ValueError, match=r"an integer in \[0, 3\); got '[012]\.5"):
        read_predictions(path)


def test_blank_lines_are_no_rows(tmp_path):
    path = tmp_path / "a.csv"  # written by csv.writer without newline="" on Windows
    path.write_bytes(b"\r\r\np_a,p_b,label\r\r\n.9,.1,a\r\r\n.2,.8,b\r\r\n  \r\r\n.2,.8,b\r\r\n")
    assert read_predictions(path).labels.tolist() == [0, 1, 1]


def test_one_model_of_two(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a_cat,a_dog,b_cat,b_dog,label\n.9,.1,.8,.2,cat\n.4,.6,.7,.3,dog\n")
    second = read_predictions(path, columns=["b_*"])
    assert second.names == ("cat", "dog") and second.correct.tolist() == [True, False]

    logits = {f"{name}_{model}": LOGITS[:, 0] - 1 for model in "xy" for name in ("cat", "dog")}
    four = {**logits, "label": np.array([0.0, 1.0, 1.0, 0.0])}
    with pytest.raises(ValueError, match=r"'cat_\*' or .*'dog_\*' or .*'\*_x' or .*'\*_y'$"):
        from_frame(four)
    assert from_frame(four, classes=list(logits)).classes == 4


def test_opposites_are_names_whatever_their_case(tmp_path):
    first, second = np.array([0.9, 0.2]), np.array([0.1, 0.8])
    for names, labels in ((("p_yes", "p_no"), ["Yes", "No"]), (("Pos", "Neg"), ["pos", "neg"])):
        frame = {names[0]: first, names[1]: second, "label": labels}
        assert from_frame(frame).correct.all()
    stored = {"labels": np.array(["Yes", "No"]), "class_names": np.array(["yes", "no"])}
    np.savez(tmp_path / "a.npz", probs=np.stack([first, second], 1), **stored)
    assert read_predictions(tmp_path / "a.npz").correct.all()


@pytest.mark.parametrize("names", [("p_1", "p_0"), ("True", "False")])
def test_true_and_yes_are_the_class_of_that_name(tmp_path, names):
    probs = np.array([[0.9, 0.1], [0.2, 0.8]])
    frame = dict(zip(names, probs.T, strict=True))
    for labels in ([True, False], ["True", "False"]):
        assert from_frame(frame | {"label": labels}).correct.all()
    assert from_frame(
        {"p_1": probs[:, 0], "p_0": probs[:, 1], "label": ["yes", "no"]}
    ).correct.all()

    stored = {"class_names": [name.removeprefix("p_") for name in names]}
    np.savez(tmp_path / "a.npz", probs=probs, labels=[True, False], **stored)
    assert read_predictions(tmp_path / "a.npz").correct.all()
    np.savez(tmp_path / "a.npz", probs=probs, labels=[0, 1], class_names=["True", "False"])
    assert read_predictions(tmp_path / "a.npz").correct.all()  # numbers are places


def test_predicted_classes_are_not_labels():
    frame = {**three(), "prediction": list("abca")}
    with pytest.raises(ValueError, match="no column 'label'"):
        from_frame(frame)
    read = from_frame(frame | {"diagnosis": ["abc"[k] for k in LABELS]})
    assert "labels from 'diagnosis'" in read.note


def test_names_of_classes_are_those_of_the_columns_with_and_without_labels(tmp_path):
    for names in ("012", "123"):
        columns = three("p_class_", names)
        path = table(tmp_path / "a.csv", {**columns, "label": [names[k] for k in LABELS]})
        labelled = read_predictions(path)
        check(labelled)
        path = table(tmp_path / "b.csv", columns)
        assert labelled.names == tuple(f"class_{k}" for k in names)
        assert labelled.names == read_predictions(path, unlabelled=True).names


def test_numbers_of_named_columns_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("p_yes,p_no,label\n.9,.1,1\n.2,.8,0\n")
    turned = read_predictions(path, columns=["p_no", "p_yes"])
    assert "0 is no, 1 is yes" in turned.note and turned.correct.all()
    for order in ({"classes": ["yes", "no"]}, {"columns": ["p_yes", "p_no"]}):
        kept = read_predictions(path, **order)
        assert "0 is yes, 1 is no" in kept.note and not kept.correct.any()
    with pytest.raises(ValueError, match="0 would be yes"):
        read_predictions(path, columns=["p_*"])


def test_separators_and_the_label_column(tmp_path):
    columns = {**three(), "diagnosis": LABELS}
    for separator in (";", "\t", "|"):
        path = table(tmp_path / "a.csv", columns, separator)
        check(read_predictions(path, label="diagnosis"), "labels from 'diagnosis'")
        with pytest.raises(ValueError, match=r"no column 'label'; .*--label-column NAME"):
            read_predictions(path)
    with pytest.raises(ValueError, match=r"no column 'diagnosi'; it holds p_a"):
        read_predictions(path, label="diagnosi")


def test_decimal_commas(tmp_path):
    """As pandas writes them with sep=";" and decimal=",", small numbers with an exponent."""
    probs = np.array([[1 - 1.5e-5, 1.5e-5], [0.25, 0.75]])
    rows = [";".join(str(p).replace(".", ",") for p in row) for row in probs]
    path = tmp_path / "a.csv"
    path.write_text(f"p_a;p_b;label\n{rows[0]};a\n{rows[1]};b\n")
    assert "e-05" in path.read_text()
    np.testing.assert_array_equal(read_predictions(path).probs, probs)


def test_columns_are_chosen_and_ordered(tmp_path):
    columns = {**three("q_"), "z_c": LOGITS[:, 2], "label": LABELS}
    path = table(tmp_path / "a.csv", columns)
    check(read_predictions(path, columns=["q_*"]))
    turned = read_predictions(path, columns=["q_c", "q_b", "q_a"])
    assert turned.names == ("q_c", "q_b", "q_a") and turned.correct.tolist() != CORRECT
    with pytest.raises(ValueError, match=r"no column 'nope'; it holds q_a"):
        read_predictions(path, columns=["nope"])


def test_hits_beside_logits_of_named_classes_are_left_out(tmp_path):
    """They are read as they are spelled, and are not damaged for that."""
    logits = dict(zip("abc", LOGITS.T.tolist(), strict=True))
    columns = {**logits, "label": ["abc"[k] for k in LABELS], "correct": [1, 0, 1, 0]}
    check(read_predictions(table(tmp_path / "a.csv", columns)), "left out correct")


def test_a_missing_value_in_a_column_nobody_needs(tmp_path):
    path = table(tmp_path / "a.csv", {"age": [30, "", 40, 50], **three(), "label": LABELS})
    check(read_predictions(path), "left out age")


@pytest.mark.parametrize("labels", [Y, Y.astype(float), ["True", "False", "False", "True"]])
def test_one_probability_of_class_1(tmp_path, labels):
    for name in ("y_score", "y_prob", "y_pred_proba", "prob", "score"):
        path = table(tmp_path / "a.csv", {"y_true": labels, name: P1})
        predictions = read_predictions(path)
        assert predictions.binary and predictions.labels.tolist() == Y.tolist()
        assert predictions.note == (
            f"read one probability column '{name}' of class 1, labels from 'y_true'"
        )
        np.testing.assert_allclose(predictions.probs[:, 1], P1, rtol=1e-15)


def test_names_of_two_classes(tmp_path):
    labels = ["spam", "ham", "ham", "spam"]
    by_column = read_predictions(table(tmp_path / "a.csv", {"p_spam": P1, "label": labels}))
    assert (by_column.names, by_column.labels.tolist()) == (("ham", "spam"), Y.tolist())

    path = table(tmp_path / "b.csv", {"y_score": P1, "label": labels})
    with pytest.raises(ValueError, match=r"--classes CLASS_0,CLASS_1\b.* --classes ham,spam$"):
        read_predictions(path)
    named = read_predictions(path, classes=["ham", "spam"])
    assert named.labels.tolist() == Y.tolist()
    assert "one probability column 'y_score' of class 1 (spam), labels" in named.note
    assert read_predictions(path, classes=["spam", "ham"]).labels.tolist() == (1 - Y).tolist()
    with pytest.raises(ValueError, match=r"^b\.csv: --classes names ham twice"):
        read_predictions(path, classes=["ham", "ham"])
    with pytest.raises(ValueError, match="must name 2 classes in their order; 3 given"):
        read_predictions(path, classes=["ham", "spam", "eggs"])


@pytest.mark.parametrize(
    ("scores", "labels", "words"),
    [
        ([0, 1, 1, 0], Y, "holds only 0 and 1: predicted classes"),
        ([10, 20, 60, 90], Y, "neither probabilities.*percentages must be divided by 100"),
        (P1, [-1, 1, 1, -1], "if class 1 is 1, say --classes=-1,1"),
        (P1, [1, 2, 2, 1], "if they count from 1, say --classes 1,2"),
        (P1, [0, 1, -100, 1], "say --ignore-index -100"),
        (P1, [0.5, 1, 0, 1], "got '0.5'|labels are 0, 0.5, 1"),
        (P1, ["a", "", "b", "b"], "no label"),
        (P1, ["a", "none", "a", "none"], "if none is a class, name the classes, --classes$"),
    ],
)
def test_one_column_that_is_not_clear(tmp_path, scores, labels, words):
    with pytest.raises(ValueError, match=words):
        read_predictions(table(tmp_path / "a.csv", {"prob": scores, "label": labels}))


def test_remedies_of_labels_are_followed(tmp_path):
    signs = table(tmp_path / "a.csv", {"prob": P1, "label": 2 * Y - 1})
    assert read_predictions(signs, classes=["-1", "1"]).labels.tolist() == Y.tolist()
    ones = table(tmp_path / "b.csv", {"prob": P1, "label": Y + 1})
    assert read_predictions(ones, classes=["1", "2"]).labels.tolist() == Y.tolist()
    ignored = table(tmp_path / "c.csv", {"prob": P1, "label": [1, 0, -100, 1]})
    predictions = read_predictions(ignored, ignore_index=-100)
    assert predictions.labels.tolist() == [1, 0, 1]
    assert predictions.note.endswith("ignored 1 rows by their label")


def test_arrays_by_usual_names(tmp_path):
    path = tmp_path / "a.npz"
    for names in (("y_prob", "y_true"), ("y_pred_proba", "target"), ("scores", "y")):
        np.savez(path, **{names[0]: PROBS, names[1]: LABELS[:, None].astype(float)})
        check(read_predictions(path), f"from '{names[0]}', labels from '{names[1]}'")
    np.savez(path, logits=LOGITS, labels=LABELS)
    assert read_predictions(path).note == ""  # our own names: nothing was guessed
    np.savez(path, y_score=P1, y_true=Y)
    assert read_predictions(path).binary
    torch.save(
        {"outputs": torch.tensor(LOGITS), "targets": torch.tensor(LABELS)}, tmp_path / "a.pt"
    )
    check(read_predictions(tmp_path / "a.pt"), "logits of 3 classes from 'outputs'")


def test_array_labels_that_are_names(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, probs=PROBS, labels=np.array(["a", "c", "c", "b"]))
    with pytest.raises(
        ValueError, match=r"labels are names \(a, b, c\): .*--classes FIRST,SECOND,"
    ):
        read_predictions(path)
    check(read_predictions(path, classes="abc"))
    np.savez(path, probs=PROBS, labels=np.array(["a", "c", "c", "b"]), class_names=list("abc"))
    check(read_predictions(path))
    np.savez(path, probs=PROBS, labels=LABELS, class_names=list("aab"))
    assert read_predictions(path).names == ()  # as ImageNet's list, which has two cranes
    np.savez(path, probs=PROBS, labels=np.array(list("abba")), class_names=list("aab"))
    with pytest.raises(ValueError, match="class_names holds 'a' twice"):
        read_predictions(path)
    np.savez(path, probs=PROBS, labels=np.array(["a", "c", "c", "b"], dtype=object))
    with pytest.raises(ValueError, match=r"labels holds Python objects.*dtype=str"):
        read_predictions(path)


def test_one_hot_and_several_labels_per_row(tmp_path):
    np.savez(tmp_path / "a.npz", probs=PROBS, labels=np.eye(3)[LABELS])
    check(read_predictions(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", probs=PROBS / 2, labels=np.eye(3)[LABELS])
    with pytest.raises(ValueError, match="independent outputs are for `evaluate --multilabel`"):
        read_predictions(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", probs=PROBS, labels=np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"several labels per row.*`toosure evaluate --mult"):
        read_predictions(tmp_path / "a.npz")


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_classes_of_tokens_are_counted(tmp_path, names):
    np.savez(tmp_path / "a.npz", logits=-np.ones((4, 5, 3)), labels=np.zeros((4, 5), dtype=int))
    for unlabelled in (False, True):
        with pytest.raises(ValueError, match=f"must name 3 classes .*; {len(names)} given"):
            read_predictions(tmp_path / "a.npz", classes=tuple(names), unlabelled=unlabelled)
    assert read_predictions(tmp_path / "a.npz", classes=tuple("abc")).names == ("a", "b", "c")


def test_tokens_are_groups(tmp_path):
    logits = np.random.default_rng(0).normal(size=(2, 3, 4))
    labels = np.array([[0, 1, -100], [3, -100, 2]])
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels)
    predictions = read_predictions(tmp_path / "a.npz")
    assert predictions.labels.tolist() == [0, 1, 3, 2]
    assert predictions.groups.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(predictions.logits[2], logits[1, 0])


def test_ignored_rows_of_arrays(tmp_path):
    labels = np.array([0, -100, 2, 1])
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=labels, site=[1, 2, 3, 4])
    predictions = read_predictions(tmp_path / "a.npz", ignore_index=-100)
    assert predictions.labels.tolist() == [0, 2, 1]
    assert predictions.note.endswith("'labels', ignored 1 rows by their label, left out site")
    assert predictions.extras["site"].tolist() == [1, 3, 4]


def test_npy_pairs(tmp_path):
    scores, truth = tmp_path / "val_logits.npy", tmp_path / "truths.npy"
    np.save(scores, LOGITS)
    np.save(truth, LABELS)
    assert npy_pair(scores, truth) == npy_pair(truth, scores) == (scores, truth)
    note = "from 'val_logits.npy', labels from 'truths.npy'"
    check(read_predictions(scores, labels=truth), note)

    np.save(tmp_path / "u.npy", P1)
    np.save(tmp_path / "v.npy", P1)
    with pytest.raises(ValueError, match=r"cannot be told; say u.npy --labels v.npy"):
        npy_pair(tmp_path / "u.npy", tmp_path / "v.npy")
    with pytest.raises(ValueError, match="is one array: give the labels too"):
        read_predictions(scores)
    np.save(truth, LABELS[:3])
    with pytest.raises(ValueError, match=r"has 4 rows and truths.npy has 3"):
        read_predictions(scores, labels=truth)

    truth.write_bytes(b"")
    with pytest.raises(ValueError, match=r"^val_logits.npy: its labels truths.npy: .*is empty"):
        read_predictions(scores, labels=truth)
    (tmp_path / "u.npy").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"^u.npy: cannot be read as .npy"):
        npy_pair(tmp_path / "u.npy", tmp_path / "v.npy")


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"id": i, "probs": p.tolist(), "label": int(y), "note": "x"}
        for i, (p, y) in enumerate(zip(PROBS, LABELS, strict=True))
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    check(read_predictions(path), "read 3 probability columns from 'probs', labels from 'label'")
    rows[1]["note"] = ["x", "y"]  # a remark, of which nothing is made
    path.write_text("\n".join(map(json.dumps, rows)))
    check(read_predictions(path), "left out id, note")

    path.write_text('{"p_a": 0.5, "p_b": 0.5, "label": "b"}\n')
    assert read_predictions(path).labels.tolist() == [1]


def test_json_lines_that_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    for text, words in (
        ('{"a": 1}\n{"b": 1}\n', "line 2 has other keys than the first line: a, b"),
        ("[1]\n", "line 1 is not an object"),
        (
            '{"probs": [0.5, 0.5], "label": 0}\n{"probs": [1.0], "label": 0}\n',
            "length 1 in row 1 .line 2",
        ),
        ('{"probs": ["a", "b"], "label": 0}\n', "must be numbers; it holds text, 'a', in row 0"),
        (
            '{"probs": [0.5, 0.5], "label": 0}\n{"probs": [1, null], "label": 0}\n',
            r"column 'probs' must be numbers; it holds null in row 1 \(line 2 of .*: write a",
        ),
        (
            '{"probs": {"a": 1, "b": 0}, "label": "a"}\n{"probs": {"a": 1}, "label": "a"}\n',
            r"'probs' has the classes a in row 1 \(line 2 .* and a, b in row 0: write the same",
        ),
        ('{"probs": {"a": 1, "b": null}, "label": "a"}\n', "'probs' holds null for 'b' in row 0"),
        ('{"probs": {}, "label": 0}\n', "column 'probs' holds empty objects"),
        ('{"probs": [[0.5, 0.5]], "label": 0}\n', "column 'probs' holds lists of lists"),
        ('{"p_a": 0.5, "p_b": 0.5, "label": null}\n', "1 row has no label, row 0"),
        ("nonsense\n", "cannot be read as .jsonl"),
        (
            '{"a": 1}\n{"a": 2}\n{"a',
            r"line 3, column 2 is not a whole object \(Unterminated string\)",
        ),
        ("[" * 100_000, "line 1 is nested too deep: write one per line"),
        ('{"a": 1' + "0" * 5000 + "}", "line 1 holds a number of too many digits"),
        ('{"probs": [], "label": 0}\n', "column 'probs' holds empty lists"),
        ('{"probs": [[1, 2], [3]], "label": 0}\n', "'probs' holds lists within lists"),
        ('{"p": 0.5, "label": 0}\n{"p": {}, "label": 0}\n', "'p' holds dict in row 1, and float"),
        ('{"p": 0.5, "label": 0}\n{"p": [1], "label": 0}\n', "'p' holds list in row 1, and float"),
        ('{"probs": "x", "label": 0}\n{"probs": [1], "label": 0}\n', "'probs' holds 'x' in row 0"),
        ('{"probs": [1], "label": 0}\n{"probs": null, "label": 0}\n', "'probs' misses 1 of 2"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            read_predictions(path)


def test_a_number_for_each_class_by_its_name(tmp_path):
    """As many write it, in any order of the classes; other objects are left out."""
    path = tmp_path / "a.jsonl"
    for name in ("probs", "softmax", "y_proba"):
        rows = [
            {name: dict(list(zip("abc", p, strict=True))[:: 1 - 2 * (i % 2)]), "label": "abc"[y]}
            for i, (p, y) in enumerate(zip(PROBS.tolist(), LABELS, strict=True))
        ]
        path.write_text("\n".join(json.dumps({**row, "meta": {"width": 7}}) for row in rows))
        check(read_predictions(path), "left out meta")
        assert read_predictions(path).names == ("a", "b", "c")
        check(from_frame({name: [row[name] for row in rows], "label": LABELS}))
        with pytest.raises(
            ValueError, match=r"'meta' must be .* \{'width': 7\} in row 0 .*called prob"
        ):
            read_predictions(path, columns="meta")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_missing_values_matter_where_they_are_needed(tmp_path, suffix):
    """A file of patients: some have no age and no remark, which nobody asked for."""
    pandas = pytest.importorskip("pandas")
    columns = {
        "age": [54.0, None, 61.0, 70.0],
        "remark": [None, "late", None, None],
        "site": ["a", None, "b", "b"],
        "risk": [0.2, 0.7, 0.4, 0.9],
        "sick": ["no", "yes", "no", "yes"],
    }
    path = tmp_path / f"a{suffix}"

    def written(**others):
        frame = pandas.DataFrame(columns | others)
        if suffix == ".csv":
            frame.to_csv(path, index=False)
        elif suffix == ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            pytest.importorskip("pyarrow")
            frame.to_parquet(path)
        return path

    asked = {"columns": ["risk"], "label": "sick"}
    predictions = read_predictions(written(), **asked)
    assert predictions.labels.tolist() == [0, 1, 0, 1]
    assert predictions.extras["site"].tolist() == ["a", "", "b", "b"]
    with pytest.raises(ValueError, match="'site' names no group in row 1"):
        read_predictions(path, groups="site", **asked)
    with pytest.raises(ValueError, match="1 row has no label, row 2"):
        read_predictions(written(sick=["no", "yes", None, "yes"]), **asked)
    scores = "column 'risk' misses 2 of 4 values, the first in row 1 .line 3 .*: drop such rows$"
    with pytest.raises(ValueError, match=scores):
        read_predictions(written(risk=[0.2, None, 0.4, None]), **asked)


def test_frames_with_missing_values_beside_the_scores():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"y": [1, 0], "p_a": [0.9, 0.4], "p_b": [0.1, 0.6]})
    frame["remark"] = [None, "late"]
    frame["seen"] = pandas.array([None, True], dtype="boolean")
    extras = from_frame(frame, label="y").extras
    assert extras["remark"].tolist() == ["", "late"] and extras["seen"].tolist() == ["", "True"]


def test_numbers_that_a_frame_misses_are_named_by_their_column():
    frame = {"y": [1, 0, 1], "age": [54.0, np.nan, 61.0], "risk": [0.9, 0.4, 0.6]}
    with pytest.raises(ValueError, match=r"column 'age' misses 1 of 3 values.*--columns"):
        from_frame(frame, label="y")
    assert from_frame(frame, label="y", columns=["risk"]).binary
    frame["risk"][0] = np.nan
    with pytest.raises(ValueError, match="column 'risk' misses 1 of 3 values"):
        from_frame(frame, label="y", columns=["risk"])


def test_a_frame_may_miss_numbers_beside_the_scores_and_where_rows_are_ignored():
    """As `DataFrame(model.predict_proba(X))` gives it, with an age and a label."""
    frame = {"0": [0.9, 0.3, 0.2], "1": [0.1, 0.7, 0.8], "label": [0.0, 1.0, -100.0]}
    for gap in (np.nan, None):
        frame["age"] = [54.5, gap, 61.0]
        predictions = from_frame(frame, ignore_index=-100)
        assert "columns 0, 1" in predictions.note
        np.testing.assert_array_equal(predictions.extras["age"], [54.5, np.nan])

    del frame["age"]
    frame["0"][2] = frame["1"][2] = np.nan
    assert from_frame(frame, ignore_index=-100).n == 2
    frame["1"][1] = np.nan
    with pytest.raises(ValueError, match="column '1' misses 1 of 3 values, the first in row 1"):
        from_frame(frame, ignore_index=-100)


def test_a_frame_of_tensors():
    """Rows that were collected in a loop are no missing values."""
    rows = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    objects = np.empty((3, 2), dtype=object)
    for k in range(2):
        objects[:, k] = rows[k], rows[k, 1], torch.tensor(k)
    probs, risk, y = objects
    assert from_frame({"probs": probs, "y": y}, label="y").correct.tolist() == [True, True]
    assert from_frame({"risk": risk, "y": y}, label="y", columns=["risk"]).binary


def test_a_missing_value_of_a_single_column_is_no_blank_line(tmp_path):
    """Pandas writes it as two quotes: leaving it out moved all rows below."""
    path = tmp_path / "a.csv"
    path.write_text('prob\n0.1\n""\n0.3\n')
    with pytest.raises(ValueError, match="'prob' misses 1 of 3 values, the first in row 1"):
        read_predictions(path, unlabelled=True)


class Frame:
    """What a pandas frame offers to a reader: names, and a column by name."""

    def __init__(self, **columns):
        self.data = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return np.asarray(self.data[name], dtype=object if name == "y" else None)


def test_data_frames():
    frame = Frame(y=["a", "c", "c", "b"], site=[1, 1, 2, 2], **three())
    predictions = from_frame(frame, label="y")
    check(predictions, "labels from 'y', left out site")
    assert predictions.extras["site"].tolist() == [1, 1, 2, 2]
    check(from_frame({**three(), "y": LABELS}))
    with pytest.raises(ValueError, match="or be a data frame; got int"):
        from_frame(3)
    with pytest.raises(ValueError, match="1 row has no label, row 1"):
        from_frame({"y": np.array([0, None]), "p_a": [0.5, 0.5], "p_b": [0.5, 0.5]}, label="y")


def test_rows_are_taken_with_all_that_belongs_to_them():
    rows = take_rows(from_frame({**three(), "y": LABELS, "site": [1, 2, 3, 4]}), np.array([2, 0]))
    assert rows.labels.tolist() == [2, 0] and rows.correct.tolist() == [True, True]
    assert rows.extras["site"].tolist() == [3, 1]
    assert rows.probs.shape == rows.logits.shape == (2, 3)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".csv"])
def test_written_predictions_are_read_back(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write_predictions(from_frame({**three(), "label": LABELS}), path)
    check(read_predictions(path))
    write_predictions(from_frame({"prob": P1, "label": Y}), path)
    again = read_predictions(path)
    assert again.binary and again.labels.tolist() == Y.tolist()
    with pytest.raises(ValueError, match=r"write a .npz, .pt or .csv"):
        write_predictions(again, tmp_path / "a.xls")


@pytest.mark.parametrize("suffix", [".npz", ".NPZ", ".pt", ".csv"])
def test_columns_of_any_name_and_kind_are_written(tmp_path, suffix):
    """Old probabilities give way to the new ones, and np.savez takes no array called `file`."""
    names = ["ham", "spam", "ham", "spam"]
    others = {"file": list("wxyz"), "probs": [0.5] * 4, "n": np.arange(4, dtype=np.uint8)}
    came = from_frame({**others, "prob": P1, "label": names}, columns=["prob"], classes=SPAM)
    assert set(came.extras) == {*others, "label"}

    path = tmp_path / f"a{suffix}"
    write_predictions(came, path)
    again = read_predictions(path, columns=["prob"] if suffix == ".csv" else (), classes=SPAM)
    np.testing.assert_allclose(again.probs[:, 1], P1)
    assert again.labels.tolist() == came.labels.tolist()
    assert again.extras["file"].tolist() == list("wxyz") and again.extras["n"][3] == 3


def test_scores_without_labels(tmp_path):
    for path in (tmp_path / "a.npz", tmp_path / "a.csv"):
        if path.suffix == ".npz":
            np.savez(path, probs=PROBS)
        else:
            table(path, three())
        predictions = read_predictions(path, unlabelled=True)
        assert "no labels" in predictions.note and "labels" not in predictions.extras
        with pytest.raises(ValueError, match=r"no (array|column) 'label"):
            read_predictions(path)


def test_classes_that_contradict_the_columns_are_refused(tmp_path):
    labels = ["spam", "ham", "ham", "spam"]
    one = table(tmp_path / "a.csv", {"p_spam": P1, "label": labels})
    with pytest.raises(ValueError, match="'p_spam' is named as the probability of spam"):
        read_predictions(one, classes=["spam", "ham"])
    two = table(tmp_path / "b.csv", {"p_ham": 1 - P1, "p_spam": P1, "label": labels})
    with pytest.raises(ValueError, match="the columns are named ham, spam, in this order"):
        read_predictions(two, classes=["spam", "ham"])
    zero = table(tmp_path / "c.csv", {"p_0": 1 - P1, "p_1": P1, "label": Y})
    with pytest.raises(ValueError, match="'p_0' is named as the probability of class 0"):
        read_predictions(zero, columns=["p_0"])
    assert read_predictions(zero, columns=["p_1"]).labels.tolist() == Y.tolist()
