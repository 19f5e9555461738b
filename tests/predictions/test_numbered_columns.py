"""Class columns that differ by a number: it says the class, in any order and with any name."""

import numpy as np
import pytest

from toosure.predictions import from_frame, read_predictions

K = 12
LABELS = np.arange(48) % K
PROBS = np.full((48, K), 0.02)
PROBS[np.arange(48), LABELS] = 0.78
PATTERNS = [
    *("c{}", "q{}", "x{}", "softmax{}", "digit {}", "p_digit{}", "prob_class{}", "out.{}.prob"),
    *("p{}", "p_{}", "P({})", "class_{}_prob", "pred_{}", "{}", "p_{:03d}"),
]


def columns_of(pattern, first=0, numbers=range(K)):
    """The columns as pandas pivots write them: in alphabetical order."""
    named = {pattern.format(first + k): PROBS[:, k] for k in numbers}
    return {name: named[name] for name in sorted(named)}


def check(read):
    """Every row is right, and the classes are in the order of their numbers."""
    assert read.correct.all() and read.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_number_says_the_class(pattern, first):
    columns = columns_of(pattern, first)
    read = from_frame(columns | {"label": LABELS + first})
    check(read)
    check(from_frame(columns | {"label": LABELS + first}, columns=list(columns), label="label"))
    if "(" in read.note.split("labels from")[1] and not read.names[0].isdecimal():
        assert f"({first} is {read.names[0]}, {first + 1} is {read.names[1]}, and" in read.note


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_so_it_is_in_files(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / f"a{suffix}"
    frame = pandas.DataFrame(columns_of("q{}") | {"label": LABELS})
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    check(read_predictions(path))
    check(read_predictions(path, columns="q*"))
    assert "(0 is q0, 1 is q1, and so on)" in read_predictions(path).note
    assert read_predictions(path, unlabelled=True).names == tuple(f"q{k}" for k in range(K))


def test_labels_that_are_names_are_names():
    names = [f"q{k}" for k in LABELS]
    read = from_frame(columns_of("q{}") | {"label": names})
    check(read)
    assert "(" not in read.note.split("labels from")[1]
    padded = [f"{k:02d}" for k in LABELS]
    check(from_frame(columns_of("p_{:02d}") | {"label": padded}))

    two = {"resnet50": PROBS[:, 0] + 0.1, "resnet18": 0.9 - PROBS[:, 0]}
    by_name = from_frame(two | {"label": np.where(LABELS == 0, "resnet50", "resnet18")})
    assert by_name.names == ("resnet50", "resnet18") and by_name.correct.all()


def test_numbers_that_do_not_rise_and_say_no_class_are_refused():
    two = {"resnet50": PROBS[:, 0] + 0.1, "resnet18": 0.9 - PROBS[:, 0]}
    labels = (LABELS != 0).astype(int)
    words = "are not in the order of their numbers, and labels 0, 1 are not these.*resnet18,resn"
    with pytest.raises(ValueError, match=words):
        from_frame(two | {"label": labels})
    assert from_frame(two | {"label": labels}, columns=list(two)).correct.all()  # the user's order
    rising = dict(reversed(two.items())) | {"label": 1 - labels}
    assert from_frame(rising).note.endswith("(0 is resnet18, 1 is resnet50)")

    from_one = columns_of("q{}", first=1)
    with pytest.raises(ValueError, match=r"not these numbers: .* as --columns q1,q2,q3,\.\.\.$"):
        from_frame(from_one | {"label": LABELS})
    check(from_frame(from_one | {"label": LABELS}, columns=[f"q{k + 1}" for k in range(K)]))


def test_numbers_with_gaps_are_read_where_labels_are_these():
    columns = {"hpv18": PROBS[:, 0] + 0.1, "hpv16": 0.9 - PROBS[:, 0]}
    read = from_frame(columns | {"label": np.where(LABELS == 0, 18, 16)})
    assert read.correct.all() and "(18 is hpv18, 16 is hpv16)" in read.note

    some = {f"q{k}": PROBS[:4, 0] for k in (1, 2, 4)} | {"label": np.array([1, 2, 1, 2])}
    with pytest.raises(ValueError, match="labels 1, 2 may be the names of the classes 1, 2, 4, or"):
        from_frame(some, kind="logits")


def test_names_of_classes_need_the_order_of_the_columns():
    """`--classes` goes by the order of the columns, which is not that of their numbers."""
    classes = [f"class {letter}" for letter in "abcdefghijkl"]
    for pattern in ("q{}", "p_{}"):
        columns = columns_of(pattern)
        with pytest.raises(ValueError, match="and --classes goes by their order: say --columns"):
            from_frame(columns | {"label": LABELS}, classes=classes)
        in_order = [pattern.format(k) for k in range(K)]
        read = from_frame(columns | {"label": LABELS}, classes=classes, columns=in_order)
        check(read)
        assert read.names == tuple(classes)
