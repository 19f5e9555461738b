"""How an interval is bootstrapped: which replicas are drawn, and which ends they give."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from toosure.metrics.group_draws import (
    group_count,
    group_numbers,
    resampled_rows,
    small_sample_factor,
)
from toosure.metrics.inputs import ArrayLike, check_choice, check_count, check_level
from toosure.metrics.interval_ends import Interval, interval_of_offsets, widened_to_value
from toosure.metrics.interval_tables import MetricInterval
from toosure.metrics.resampler import Resampler

METHODS = ("auto", "basic", "percentile")


class Bootstrap(NamedTuple):
    """How replicas are drawn, and which interval they give."""

    level: float
    resampler: Resampler
    method: str
    groups: Tensor | None  # (N,) numbers; None where rows are independent

    def rows(self, labels: Tensor) -> Iterator[Tensor]:
        """Yield the row numbers of each replica."""
        if self.groups is None:
            draws = self.resampler.torch_rows(len(labels))
        else:
            draws = resampled_rows(self.groups, *self.resampler)
        for rows in draws:
            yield rows.to(labels.device)

    def interval(self, entry: MetricInterval, value: Tensor, offsets: Tensor) -> Interval:
        """Return the interval around `value` from the replicas' offsets, replica minus value."""
        if self.groups is not None:
            factor = small_sample_factor(group_count(self.groups), self.level)
            interval = interval_of_offsets(value, offsets, self.level, factor=factor)
        elif entry.kind == "area" and self.method == "auto":
            # "basic" turns a tail below into one beyond 1.
            interval = interval_of_offsets(value, offsets, self.level, "percentile")
            interval = widened_to_value(interval)
        else:
            interval = interval_of_offsets(value, offsets, self.level, self.method)
        return entry.within_range(interval)


def as_bootstrap(
    level: float, seed: int, samples: int, method: str, groups: ArrayLike | None, n: int
) -> Bootstrap:
    """Check the options of an interval over n rows."""
    check_level(level)
    check_count("samples", samples)
    check_choice("method", method, METHODS)
    resampler = Resampler(seed, samples)
    if groups is None:
        return Bootstrap(level, resampler, method, None)

    if method != "auto":
        raise ValueError(f'over groups there is only method="auto"; got {method!r}')
    return Bootstrap(level, resampler, method, group_numbers(groups, n))
