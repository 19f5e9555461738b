"""Measure a classifier while it trains, in our loop or in yours."""

from toosure.watch.spacing import Spacing
from toosure.watch.watch import Watch

__all__ = ["Spacing", "Watch"]
