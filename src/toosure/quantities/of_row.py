"""Numbers of a whole row: where a run stands and what it took."""

from toosure.quantities.quantity import Quantity

OF_ROW = (
    Quantity("step", "step", "steps taken; 0 is the start", splits=(), cost="none", form=",.0f"),
    Quantity("epoch", "epoch", "epochs taken", splits=(), cost="given"),
    Quantity(
        "lr",
        "learning rate",
        "learning rate of the last step (of the first parameter group)",
        splits=(),
        cost="given",
        form=".3g",
    ),
    Quantity(
        "seconds",
        "seconds",
        "time since the start, measuring included, time between an interruption and its "
        "resumption not",
        splits=(),
        cost="none",
        form=",.1f",
    ),
    Quantity(
        "seconds_measuring",
        "seconds measuring",
        "what this measurement took",
        splits=(),
        cost="none",
    ),
    Quantity(
        "diverged",
        "diverged",
        "present and true where outputs or the training loss were no longer finite; then there "
        "are no other numbers",
        splits=(),
        cost="none",
    ),
)
