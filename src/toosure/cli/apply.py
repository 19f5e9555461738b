"""`toosure apply`: calibrate the predictions in a file with a saved calibrator."""

from pathlib import Path
from typing import Annotated

import typer

from toosure.cli.app import app, fail
from toosure.cli.evaluation_options import Split
from toosure.cli.file_options import (
    ClassNames,
    FileOptions,
    KindOption,
    LabelColumn,
    ScoreColumns,
)


@app.command()
def apply(
    calibrator: Annotated[Path, typer.Argument(help="What `toosure calibrate -o` wrote (.pt).")],
    file: Annotated[Path, typer.Argument(help="Predictions; labels need not be there.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write (.npz, .pt, .csv).")
    ],
    kind: KindOption = None,
    label_column: LabelColumn = None,
    columns: ScoreColumns = None,
    classes: ClassNames = None,
    split: Split = None,
) -> None:
    """Write the calibrated probabilities of FILE to OUTPUT.

    Labels go along, where FILE has some.
    """
    from toosure.posthoc import load_calibrator
    from toosure.predictions.writing import as_spelled, check_writable, write_predictions
    from toosure.recalibration import calibrated

    reading = FileOptions(kind, label_column, columns, classes, unlabelled=True)
    try:
        check_writable(output, file, calibrator)
        fitted = load_calibrator(calibrator)
        predictions = reading.read(file, split)
        after = calibrated(fitted, predictions)
        write_predictions(as_spelled(after, file, output), output)
    except ValueError as error:
        fail(str(error))
    typer.echo(f"{after.n:,} rows of calibrated probabilities: {output}", err=True)
