"""Write predictions as files that `read_predictions` reads back."""

import csv
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.predictions.csv_files import cells_of
from toosure.predictions.kinds import is_named_logits
from toosure.predictions.predictions import Predictions, as_tensor
from toosure.predictions.usual_names import class_of
from toosure.runs.files import check_target

SUFFIXES = (".npz", ".pt", ".csv")


def check_writable(path: Path, *read: Path) -> None:
    """Refuse, before the work, a file of predictions that could not be written, or is read."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: write a .npz, .pt or .csv")
    check_target(path, *read)


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write probabilities, with the other columns that were read, such as labels.

    One probability of class 1 came in: one goes out.
    """
    check_writable(path)
    assert predictions.probs is not None
    probs = predictions.probs.cpu().numpy()
    extras = dict(predictions.extras)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".csv":
            if predictions.layout is not None:
                raise ValueError(f"{path}: tokens and pixels keep their shape: write a .npz or .pt")
            write_csv(path, probs, extras, predictions)
            return

        # Columns that were read under these names, such as old probabilities, are replaced.
        probs = probs[:, 1] if predictions.binary else probs
        if predictions.layout is not None:
            probs = predictions.layout.restored(probs)
        arrays = {**extras, "probs": probs}
        if predictions.names:
            arrays["class_names"] = np.array(predictions.names)
        if path.suffix.lower() == ".npz":
            write_npz(path, arrays)
        else:
            content = {name: as_tensor_or_texts(values, name) for name, values in arrays.items()}
            torch.save(content, path)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{path}: cannot be written ({reason})") from error


def as_tensor_or_texts(values: np.ndarray, name: str) -> Tensor | list[str]:
    """Return numbers as a tensor and the rest as text, which torch loads without executing it."""
    fits = values.dtype != np.uint64 or not values.size or values.max() < 2**63
    if values.dtype.kind in "biuf" and fits:
        return as_tensor(values, name)
    texts = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values.astype(str)
    listed: list[str] = texts.tolist()
    return listed


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as np.savez does, which takes none that is called `file`."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                plain = values.astype(str) if values.dtype.kind == "O" else values
                np.lib.format.write_array(file, plain, allow_pickle=False)


def as_spelled(predictions: Predictions, file: Path, output: Path) -> Predictions:
    """Return the other columns of a .csv as the file spells them, if they go to a .csv again."""
    if {file.suffix.lower(), output.suffix.lower()} != {".csv"} or not predictions.extras:
        return predictions
    try:
        cells = cells_of(file, predictions.extras)
    except ValueError:  # rows of other lengths than the header, which the reader forgave
        return predictions
    same_rows = {name: text for name, text in cells.items() if len(text) == predictions.n}
    return replace(predictions, extras={**predictions.extras, **same_rows})


def column_of_class_one(predictions: Predictions) -> str:
    """Return the name of a single column to write: as it was read, or of its class.

    Logits become probabilities, so the column must not be called logits.
    """
    came = predictions.column
    if came and not is_named_logits(came):
        return came
    own = class_of(came)
    if predictions.names or own != came:
        return f"p_{predictions.names[1] if predictions.names else own}"
    return "prob"


def write_csv(
    path: Path, probs: np.ndarray, extras: dict[str, np.ndarray], predictions: Predictions
) -> None:
    """Write the other columns, then a column p_CLASS for each class."""
    names = predictions.names or tuple(map(str, range(probs.shape[1])))
    columns = {f"p_{name}": probs[:, k] for k, name in enumerate(names)}
    if predictions.binary:
        columns = {column_of_class_one(predictions): probs[:, 1]}
    extras = {name: values for name, values in extras.items() if name not in columns}

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*extras, *columns])
        rows = zip(
            *(values.tolist() for values in (*extras.values(), *columns.values())), strict=True
        )
        writer.writerows(rows)
