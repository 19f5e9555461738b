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
        "control/rho",
        "steered radius",
        "radius rho of SAM that the controller has set (of the first parameter group)",
        label="rho",
        splits=(),
        cost="given",
        form=".3g",
    ),
    Quantity(
        "control/gamma",
        "steered gamma",
        "gamma of CSAM or of the focal loss that the controller has set",
        label="gamma",
        splits=(),
        cost="given",
        form=".3g",
    ),
    Quantity(
        "control/log_temperature",
        "log temperature of the control split",
        "log T of the temperature that fits the control split best, at the controller's last look; "
        "above 0 the network is too sure",
        label="log T",
        splits=(),
        cost="given",
    ),
    Quantity(
        "control/gap",
        "gap of the control split",
        "confidence minus accuracy on the control split at the controller's last look, where it "
        "steers by that",
        label="control gap",
        splits=(),
        cost="given",
        form=".4f",
    ),
    Quantity(
        "control/standard_error",
        "standard error of the control split",
        "standard error of what the controller steers by; it acts beyond `dead_band` of them (2)",
        label="control se",
        splits=(),
        cost="given",
        form=".4f",
    ),
    Quantity(
        "control/acted",
        "controller acted",
        "what the controller's last look did: 1 raised, -1 lowered, 0 left alone",
        label="acted",
        splits=(),
        cost="given",
        form="+.0f",
    ),
    Quantity(
        "control/held",
        "controller held",
        "1 once the control split was returned to training and the controller holds still, else 0",
        label="held",
        splits=(),
        cost="given",
        form=".0f",
    ),
    Quantity(
        "control/look_seconds",
        "seconds per look",
        "what a look of the controller takes, mean since the start or the resumption",
        label="look seconds",
        splits=(),
        cost="given",
        form=".4f",
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
        "gathered",
        "gathered weights",
        "only where FSDP2 shards the weights and curvature was asked for: true where it is of "
        "weights gathered in every process, false where they were too many and "
        "`critical_sharpness` was measured instead",
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
