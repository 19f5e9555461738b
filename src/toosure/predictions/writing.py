"""Write predictions as files that `read_predictions` reads back."""

import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toosure.predictions.csv_files import cells_of
from toosure.predictions.predictions import Predictions

SUFFIXES = (".npz", ".pt", ".csv")


def check_target(path: Path) -> None:
    """Refuse, before the work, a file that could not be written."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}: make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path}: cannot be written (no permission): name another file")


def check_writable(path: Path) -> None:
    """Refuse, before the work, a file of predictions that could not be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: write a .npz, .pt or .csv")
    check_target(path)


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write probabilities, with the other columns that came: labels too, where there were some.

    One probability of class 1 came in: one goes out.
    """
    check_writable(path)
    assert predictions.probs is not None
    probs = predictions.probs.cpu().numpy()
    extras = dict(predictions.extras)
    try:
        if path.suffix.lower() == ".csv":
            write_csv(path, probs, extras, predictions)
            return

        arrays: dict[str, Any] = {"probs": probs[:, 1] if predictions.binary else probs, **extras}
        if predictions.names:
            arrays["class_names"] = np.array(predictions.names)
        if path.suffix.lower() == ".npz":
            np.savez(path, **arrays)
        else:
            numbers = {k: v for k, v in arrays.items() if v.dtype.kind in "bif"}
            torch.save({name: torch.from_numpy(each) for name, each in numbers.items()}, path)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path}: cannot be written ({error})") from error


def as_spelled(predictions: Predictions, file: Path, output: Path) -> Predictions:
    """Return the other columns of a .csv as the file spells them, where they go to another .csv."""
    if {file.suffix.lower(), output.suffix.lower()} != {".csv"} or not predictions.extras:
        return predictions
    try:
        cells = cells_of(file, predictions.extras)
    except ValueError:  # rows of other lengths than the header, which the reader forgave
        return predictions
    same_rows = {name: text for name, text in cells.items() if len(text) == predictions.n}
    return replace(predictions, extras={**predictions.extras, **same_rows})


def write_csv(
    path: Path, probs: np.ndarray, extras: dict[str, np.ndarray], predictions: Predictions
) -> None:
    """Write the other columns, then a column p_CLASS for each class."""
    names = predictions.names or tuple(map(str, range(probs.shape[1])))
    columns = {f"p_{name}": probs[:, k] for k, name in enumerate(names)}
    if predictions.binary:
        columns = {"prob": probs[:, 1]}

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*extras, *columns])
        rows = zip(
            *(values.tolist() for values in (*extras.values(), *columns.values())), strict=True
        )
        writer.writerows(rows)
