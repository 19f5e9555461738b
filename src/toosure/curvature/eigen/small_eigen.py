"""Small matrices on the host: the eigenpairs of a matrix seen through rows that overlap.

LAPACK is called as it is: of matrices this small, checking them takes longer than solving them.
"""

import numpy as np
from scipy.linalg.lapack import dposv, dpotrf, dsyevd, dtrtri

from toosure.curvature.eigen.eager_basis import INDEPENDENT


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
    """Eigenvalues, largest first, and eigenvectors of a symmetric matrix."""
    values, vectors, failed = dsyevd(matrix)
    if failed:
        return np.full(len(matrix), np.nan), np.eye(len(matrix))
    return values[::-1], vectors[:, ::-1]


def pencil(gram: np.ndarray, overlap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values, largest first, and their combinations of rows with these overlaps."""
    axes = whitening(overlap)
    inside = axes.T @ gram @ axes
    values, turns = descending((inside + inside.T) / 2)
    return values, axes @ turns


def solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The solution of a positive definite system; None where it is not one."""
    _, solution, failed = dposv(matrix, right)
    return None if failed else solution


def whitening(overlap: np.ndarray) -> np.ndarray:
    """Columns that combine rows with these overlaps to orthonormal ones.

    A row that is nearly dependent on those before it is left out, and no other: what was spanned
    before it came stays spanned.
    """
    root, failed = dpotrf(overlap, lower=1)
    if not failed and root.diagonal().min() ** 2 > INDEPENDENT:
        return dtrtri(root, lower=1)[0].T
    rest, root, kept = overlap.copy(), np.zeros_like(overlap), []
    for row in range(len(overlap)):
        if rest[row, row] > INDEPENDENT:
            root[:, row] = rest[:, row] / np.sqrt(rest[row, row])
            rest -= np.outer(root[:, row], root[:, row])
            kept.append(row)
    columns = np.zeros((len(overlap), len(kept)))
    columns[kept] = np.linalg.inv(np.tril(root[np.ix_(kept, kept)])).T
    return columns
