"""Small matrices on the host: the eigenpairs of a matrix seen through rows that overlap."""

import numpy as np

from toosure.curvature.basis import INDEPENDENT


class Told:
    """Numbers that came from the device in one piece, taken off matrix by matrix."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers, self.place = numbers, 0

    def take(self, rows: int, columns: int) -> np.ndarray:
        start, self.place = self.place, self.place + rows * columns
        return self.numbers[start : self.place].reshape(rows, columns)


def bordered(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A symmetric matrix with new rows, and columns, behind its own."""
    known, total = len(matrix), rows.shape[1]
    whole = np.empty((total, total))
    whole[:known, :known], whole[known:], whole[:, known:] = matrix, rows, rows.T
    return whole


def descending(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)  # small: faster than torch's, and of one thread
    return values[::-1], vectors[:, ::-1]


def pencil(gram: np.ndarray, overlap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values, largest first, and their combinations of rows with these overlaps."""
    if not (np.isfinite(gram).all() and np.isfinite(overlap).all()):
        return np.full(len(gram), np.nan), np.eye(len(gram))
    axes = whitening(overlap)
    inside = axes.T @ gram @ axes
    values, turns = descending((inside + inside.T) / 2)
    return values, axes @ turns


def whitening(overlap: np.ndarray) -> np.ndarray:
    """Columns that combine rows with these overlaps to orthonormal ones.

    A row that is nearly dependent on those before it is left out, and no other: what was spanned
    before it came stays spanned.
    """
    try:
        root = np.linalg.cholesky(overlap)
    except np.linalg.LinAlgError:
        root = np.zeros((1, 1))
    if np.diag(root).min() ** 2 > INDEPENDENT:
        return np.linalg.inv(root).T
    rest, root, kept = overlap.copy(), np.zeros_like(overlap), []
    for row in range(len(overlap)):
        if rest[row, row] > INDEPENDENT:
            root[:, row] = rest[:, row] / np.sqrt(rest[row, row])
            rest -= np.outer(root[:, row], root[:, row])
            kept.append(row)
    columns = np.zeros((len(overlap), len(kept)))
    columns[kept] = np.linalg.inv(np.tril(root[np.ix_(kept, kept)])).T
    return columns
