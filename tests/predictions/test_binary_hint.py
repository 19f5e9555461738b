"""A table of a binary classifier that cannot be read: the error names all options at once."""

import shlex

import numpy as np
import pytest

from toosure.predictions import read_predictions

ROWS = ["id,age,risk,diagnosis"]
ROWS += [f"{100 + i},{30 + i},{(i % 10) / 10 + 0.05:.2f},{'bm'[i % 10 > 4]}" for i in range(40)]


def written(tmp_path, rows=ROWS):
    path = tmp_path / "predictions.csv"
    path.write_text("\n".join(rows))
    return path


def arguments(message):
    """Return the options of a hint as arguments of `read_predictions`."""
    words = shlex.split(message.split("all at once")[1].split(": ", 1)[1])
    given = dict(zip(words[::2], words[1::2], strict=True))
    classes = tuple(given["--classes"].split(",")) if "--classes" in given else ()
    return {"label": given["--label-column"], "columns": (given["--columns"],), "classes": classes}


@pytest.mark.parametrize(
    "options",
    [{}, {"label": "diagnosis"}, {"label": "diagnosis", "columns": ("risk",)}],
    ids=["nothing said", "label said", "label and column said"],
)
def test_the_hint_reads_the_file(tmp_path, options):
    path = written(tmp_path)
    with pytest.raises(ValueError, match="if 'risk' is the probability of m:") as error:
        read_predictions(path, **options)

    predictions = read_predictions(path, **arguments(str(error.value)))
    assert predictions.labels.tolist() == [int(i % 10 > 4) for i in range(40)]
    assert predictions.names == ("b", "m")


def test_labels_that_say_what_they_are_need_no_classes(tmp_path):
    rows = [ROWS[0]] + [row.replace(",b", ",0").replace(",m", ",1") for row in ROWS[1:]]
    with pytest.raises(ValueError, match="all at once") as error:
        read_predictions(written(tmp_path, rows))
    assert "--classes" not in str(error.value)
    predictions = read_predictions(tmp_path / "predictions.csv", **arguments(str(error.value)))
    assert np.mean(predictions.labels.numpy()) == 0.5


@pytest.mark.parametrize(
    ("extra", "value"), [("sex", "fm"), ("other_risk", ("0.1", "0.2"))], ids=["labels", "scores"]
)
def test_nothing_is_guessed_among_several(tmp_path, extra, value):
    rows = [f"{row},{value[i % 2] if i else extra}" for i, row in enumerate(ROWS)]
    with pytest.raises(ValueError, match="no column 'label'") as error:
        read_predictions(written(tmp_path, rows))
    assert "all at once" not in str(error.value)


def test_names_of_several_words_are_quoted(tmp_path):
    rows = [row.replace(",b", ",not ill").replace(",m", ",very ill") for row in ROWS[1:]]
    path = written(tmp_path, ["id,age,risk of death,the diagnosis", *rows])
    with pytest.raises(ValueError, match="all at once") as error:
        read_predictions(path)
    predictions = read_predictions(path, **arguments(str(error.value)))
    assert predictions.names == ("not ill", "very ill")


def test_no_hint_of_a_name_with_a_comma(tmp_path):
    """`--classes` parts its names there."""
    rows = [ROWS[0], *(row.replace(",b", ',"not ill, or not sure"') for row in ROWS[1:])]
    with pytest.raises(ValueError, match="no column 'label'") as error:
        read_predictions(written(tmp_path, rows))
    assert "all at once" not in str(error.value)


def test_options_that_were_given_are_not_the_hint(tmp_path):
    rows = [ROWS[0]] + [row.replace(",b", ",0").replace(",m", ",1") for row in ROWS[1:]]
    path = written(tmp_path, rows)
    with pytest.raises(ValueError, match="no column or array 'site'") as error:
        read_predictions(path, label="diagnosis", columns=["risk"], groups="site")
    assert "all at once" not in str(error.value)


def with_sex(rows, score="prob_m"):
    """Return the table with another column of two values, and the score's column named."""
    header = rows[0].replace("risk", score) + ",sex"
    return [header] + [f"{row},{'FM'[i % 2]}" for i, row in enumerate(rows[1:])]


@pytest.mark.parametrize("score", ["prob_m", "prob_b"], ids=["rises", "falls"])
def test_a_score_named_by_a_class_says_which_column_holds_the_labels(tmp_path, score):
    with pytest.raises(ValueError, match="--label-column diagnosis") as error:
        read_predictions(written(tmp_path, with_sex(ROWS, score)))
    predictions = read_predictions(tmp_path / "predictions.csv", **arguments(str(error.value)))
    assert predictions.names[1] == score[-1]
    assert predictions.labels.tolist() == [int("bm"[i % 10 > 4] == score[-1]) for i in range(40)]


def test_the_probability_of_no_is_not_that_of_yes(tmp_path):
    rows = [row.replace(",b", ",yes").replace(",m", ",no") for row in ROWS[1:]]
    with pytest.raises(ValueError, match="if 'p_no' is the probability of no:") as error:
        read_predictions(written(tmp_path, ["id,age,p_no,diagnosis", *rows]))
    predictions = read_predictions(tmp_path / "predictions.csv", **arguments(str(error.value)))
    assert predictions.names == ("yes", "no")


@pytest.mark.parametrize("score", ["risk", "prob_m"])
def test_a_column_is_not_taken_for_the_labels_because_some_labels_are_missing(tmp_path, score):
    rows = [*ROWS[:-1], ROWS[-1][:-1]]
    with pytest.raises(ValueError, match="no column 'label'") as error:
        read_predictions(written(tmp_path, with_sex(rows, score)))
    assert "all at once" not in str(error.value)


def test_scores_that_need_no_labels_are_not_told_to_name_them(tmp_path):
    rows = [f"{row.rpartition(',')[0]},{'FM'[i % 2]}" for i, row in enumerate(ROWS[1:])]
    path = written(tmp_path, ["id,age,risk,sex", *rows])
    with pytest.raises(ValueError, match="--columns") as error:
        read_predictions(path, unlabelled=True)
    assert "all at once" not in str(error.value)
