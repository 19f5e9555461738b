"""Eigenproblems of small dense matrices, in float64 on the host.

There are two routines for the eigenpairs of a symmetric matrix. `eigh` uses torch, which shares its
threads with the products: numpy's own thread pool would slow them down. `lapack_eigh` calls LAPACK
directly, because the checks of a wrapper take longer than the solution of such a small matrix. It
serves the basis in GPU memory, where the host is the bottleneck. Their last digits differ, so
exchanging one for the other changes results.
"""

import numpy as np
import torch
from scipy.linalg.lapack import dposv, dpotrf, dsyevd, dtrtri

MIN_SINE_SQUARED = 1e-2  # of a row to earlier ones; overlaps right to 1e-8 then leave 1e-6


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues of a symmetric matrix, largest first, and its eigenvectors.

    The values of a matrix that is not finite are NaN.
    """
    if not np.isfinite(matrix).all():
        return np.full(len(matrix), np.nan), np.eye(len(matrix))
    values, vectors = torch.linalg.eigh(torch.from_numpy((matrix + matrix.T) / 2))
    return values.numpy()[::-1], vectors.numpy()[:, ::-1]


def lapack_eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs of an exactly symmetric matrix, by a direct call of LAPACK."""
    values, vectors, failed = dsyevd(matrix)
    if failed:
        return np.full(len(matrix), np.nan), np.eye(len(matrix))
    return values[::-1], vectors[:, ::-1]


def generalised_eigh(gram: np.ndarray, overlap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve gram c = theta overlap c: the Ritz values, largest first, and the coefficients c.

    `gram` is R A R^T and `overlap` is R R^T for rows R that need not be orthonormal.
    """
    axes = whitening(overlap)
    inside = axes.T @ gram @ axes
    values, vectors = lapack_eigh((inside + inside.T) / 2)
    return values, axes @ vectors


def whitening(overlap: np.ndarray) -> np.ndarray:
    """Return columns that combine rows with these overlaps to orthonormal ones.

    Only rows that nearly depend on earlier rows are left out, so the span stays nearly the same.
    """
    root, failed = dpotrf(overlap, lower=1)
    if not failed and root.diagonal().min() ** 2 > MIN_SINE_SQUARED:
        inverse: np.ndarray = dtrtri(root, lower=1)[0].T
        return inverse

    # A Cholesky decomposition that skips dependent rows.
    rest = overlap.copy()
    root = np.zeros_like(overlap)
    independent = []
    for row in range(len(overlap)):
        if rest[row, row] > MIN_SINE_SQUARED:
            root[:, row] = rest[:, row] / np.sqrt(rest[row, row])
            rest -= np.outer(root[:, row], root[:, row])
            independent.append(row)

    columns = np.zeros((len(overlap), len(independent)))
    triangle = np.tril(root[np.ix_(independent, independent)])
    columns[independent] = np.linalg.inv(triangle).T
    return columns


def solve_positive_definite(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Solve a positive definite system; return None if the matrix is not positive definite."""
    _, solution, failed = dposv(matrix, right)
    return None if failed else solution


def bordered(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix extended by new rows and the same columns."""
    known = len(matrix)
    total = rows.shape[1]
    whole = np.empty((total, total))
    whole[:known, :known] = matrix
    whole[known:] = rows
    whole[:, known:] = rows.T
    return whole
