"""What every measurement of curvature returns."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Result:
    """A number with its estimated error and cost.

    `error` is the estimated error relative to the value (0 if the value is exact up to rounding).
    `residual` is |A x - theta x| / |theta| of an eigenpair. `products` counts products with the
    matrix (a JVP or a VJP alone is half of one). `converged` is False if the tolerance was not
    reached or the value is not finite; `note` then says why.
    """

    value: Any  # a float, or a tensor of several numbers
    error: float
    residual: float = float("nan")
    products: float = 0.0
    converged: bool = True
    note: str = ""

    def __float__(self) -> float:
        return float(self.value)


@dataclass(frozen=True)
class Eigenpairs(Result):
    """Eigenvalues in `value` (k,), largest first, with their vectors (k, P)."""

    vectors: Tensor | None = None

    @property
    def values(self) -> Any:
        return self.value


def check_rtol(rtol: float) -> None:
    """Raise unless rtol is a tolerance: 0 asks for as little error as rounding leaves."""
    if not rtol >= 0:
        raise ValueError(f"rtol must be 0 or more; got {rtol!r}")
