"""Run folders with chosen numbers in them, for recipes to read."""

from dataclasses import asdict

import numpy as np

from toosure.runs import RunWriter

KEYS = (
    "ece",
    "mmce",
    "gn_sharpness",
    "loss",
    "accuracy",
    "confidence",
    "margin_q50",
    "margin_q01",
    "margin_min",
)


def write_run(out, config, status="complete", device="a test", **series):
    """Write the run of a config: `train_ece=values` becomes the column train/ece."""
    lengths = {len(values) for values in series.values()}
    assert len(lengths) == 1
    n = lengths.pop()
    steps = np.linspace(0, config.steps, n).astype(int)
    rest = {f"{s}/{k}": np.linspace(0.5, 0.4, n) for s in ("train", "val") for k in KEYS}
    columns = rest | {key.replace("_", "/", 1): values for key, values in series.items()}
    with RunWriter(out / config.name, asdict(config)) as writer:
        writer.write_environment({"device": device, "versions": {"torch": "2"}, "commit": "c0ffee"})
        for i, step in enumerate(steps):
            row = {"step": int(step), "lr": 0.1, "seconds": 0.5 * i, "seconds_measuring": 0.1}
            writer.append({**row, **{key: float(values[i]) for key, values in columns.items()}})
        writer.set_status(status, int(steps[-1]), "" if status == "complete" else "on purpose")
