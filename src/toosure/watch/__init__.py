"""The one thing that measures while a classifier trains, in our loop or in anybody's."""

from toosure.watch.spacing import Spacing
from toosure.watch.watch import Watch

__all__ = ["Spacing", "Watch"]
