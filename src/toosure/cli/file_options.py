"""Options for reading a file of predictions, shared by several commands."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from toosure.predictions import Predictions

DATA_ROOT = Path("data")  # the default of --data-root


class Kind(StrEnum):
    """What a file holds."""

    logits = "logits"
    probs = "probs"
    confidence = "confidence"


KindOption = Annotated[
    Kind | None,
    typer.Option("--kind", help="What the scores are, where their names do not say it."),
]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", help="The column or array of the true classes.")
]
ScoreColumns = Annotated[
    str | None,
    typer.Option("--columns", help="The columns of scores, in class order: p_a,p_b or 'p_*'."),
]
ClassNames = Annotated[
    str | None,
    typer.Option("--classes", help="The classes in the order of the columns: cat,dog."),
]
IgnoreIndex = Annotated[
    int | None, typer.Option("--ignore-index", help="Leave out rows with this label, as -100.")
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        help="The column or array that says which rows come together, as patient: intervals "
        "resample whole groups.",
    ),
]
TopLabel = Annotated[
    bool | None,
    typer.Option(
        "--top-label/--class-1",
        help="Of two classes: judge the predicted class, or P(class 1). [P(class 1) of one column, "
        "and of a run whose model has one output; else the predicted class]",
        show_default=False,
    ),
]
LabelsFile = Annotated[
    Path | None, typer.Option("--labels", help="The .npy of the labels, beside a .npy of scores.")
]


def listed_words(text: str | None) -> tuple[str, ...]:
    """Split a list of words at its commas.

    >>> listed_words("cat, dog"), listed_words(None)
    (('cat', 'dog'), ())
    """
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text else ()


@dataclass(frozen=True)
class FileOptions:
    """How to read the files of a command, according to its options."""

    kind: Kind | None = None
    label: str | None = None
    columns: str | None = None
    classes: str | None = None
    ignore_index: int | None = None
    unlabelled: bool = False
    # Of two classes; None is P(class 1) for one column, and the predicted class for two.
    top_label: bool | None = None
    groups: str | None = None

    def read(
        self, path: Path, split: str | None = None, labels: Path | None = None
    ) -> "Predictions":
        """Read predictions, and print on standard error what was guessed."""
        from toosure.predictions import read_predictions

        try:
            predictions = read_predictions(
                path,
                self.kind.value if self.kind else None,
                split,
                labels=labels,
                label=self.label,
                columns=listed_words(self.columns),
                classes=listed_words(self.classes),
                ignore_index=self.ignore_index,
                unlabelled=self.unlabelled,
                groups=self.groups,
            )
        except ValueError as error:
            # Its message begins with the name of the file, which several folders may have.
            raise ValueError(f"{str(path).removesuffix(path.name)}{error}") from error
        if predictions.note:
            typer.echo(f"{path.name}: {predictions.note}", err=True)
        return self.judged(predictions)

    def judged(self, predictions: "Predictions") -> "Predictions":
        """Return predictions with `binary` set as --top-label or --class-1 says, if given."""
        if self.top_label is None:
            return predictions
        if predictions.classes != 2:
            came = f"{predictions.classes} classes" if predictions.classes else "confidences alone"
            raise ValueError(
                f"--top-label and --class-1 are of two classes; {predictions.source} has {came}"
            )
        return replace(predictions, binary=not self.top_label)


def keeps_test_rows(predictions: Path, otherwise: str) -> bool:
    """Whether a run kept test predictions; if not, print what judges instead."""
    from toosure.predictions.file_formats import array_names

    names = array_names(predictions)
    if any(name.startswith("test_") for name in names):
        return True
    has_validation = any(name.startswith("val_") for name in names)
    if has_validation:
        typer.echo(f"this run kept no test predictions: {otherwise}", err=True)
    return not has_validation  # then the reader says what is missing


def kept_split(predictions: Path) -> str:
    """Return the split of a run's predictions to judge: test, else validation, with a message."""
    return "test" if keeps_test_rows(predictions, "its validation rows are judged") else "val"


def paired_files(files: Sequence[Path], labels: Path | None) -> list[tuple[Path, Path | None]]:
    """Return each file of scores with its file of labels, which only a .npy needs."""
    from toosure.predictions import npy_pair

    if labels is not None:
        if len(files) > 1:
            raise ValueError("--labels goes with one file of scores")
        return [(files[0], labels)]

    arrays = [file for file in files if file.suffix.lower() == ".npy"]
    if not arrays:
        return [(file, None) for file in files]
    if len(arrays) != 2 or len(files) != 2:
        raise ValueError(
            "a .npy is one array: give scores and labels, as logits.npy labels.npy, and no others"
        )
    for file in arrays:
        if not file.is_file():
            raise ValueError(f"{file.name}: no such file")
    return [npy_pair(*arrays)]


def reject_with(
    others: Mapping[str, object], option: str, hint: str = "leave one of them out"
) -> None:
    """Raise on the first of `others` that was given: it has no effect beside `option`."""
    for name, value in others.items():
        if value:
            raise ValueError(f"{name} does not go with {option}: {hint}")


def reject_all_except(
    context: typer.Context,
    option: str,
    allowed: Collection[str],
    hint: str = "leave one of them out",
) -> None:
    """Raise on the first option of a command line that has no effect beside `option`."""
    without_effect = [name for name in options_given(context) if name not in (option, *allowed)]
    reject_with(dict.fromkeys(without_effect, True), option, hint)


def options_given(context: typer.Context) -> list[str]:
    """Return the options that the user wrote, in the order of the help."""
    names = []
    for option in context.command.params:
        assert option.name is not None
        source = context.get_parameter_source(option.name)
        if source is None or source.name != "COMMANDLINE" or option.param_type_name != "option":
            continue
        is_off = option.secondary_opts and not context.params[option.name]
        names.append(option.secondary_opts[0] if is_off else option.opts[0])
    return names


def require_option(option: str, others: Mapping[str, object]) -> None:
    """Raise on the first of `others` that was given: it needs `option`."""
    for name, value in others.items():
        if value:
            raise ValueError(f"{name} goes with {option}: add that, or leave {name} out")


def predictions_file(run: Path) -> Path:
    """Return the file of a run's predictions; raise if it has none."""
    path = run / "predictions.npz"
    if not path.is_file():
        raise ValueError(
            f"{run} holds no predictions.npz: name the folder of one run that ended. A loop of "
            "your own leaves one if its watch has validation data and ends with `with Watch(...)` "
            "or `watch.finish()`"
        )
    if (run / "best.npz").is_file():
        typer.echo(
            f"{path} is of the last step; {run / 'best.npz'} holds the best one (--split val or "
            "test)",
            err=True,
        )
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a ValueError that names the file and the reason."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror})") from error


def write_text(path: Path, text: str) -> None:
    """Write a page, and make missing folders; raise if that fails."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
