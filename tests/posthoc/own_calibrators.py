"""What a user might write: a calibrator, and something that is none."""

from toosure.posthoc import Temperature


class Mine(Temperature):
    """Temperature scaling under a name of one's own."""


class NotOne:
    """Has no fit."""
