"""Compare runs: rows, final weights, and the state of the optimizer."""

import pytest
import torch

from toosure.train.checkpoint import load_checkpoint

CLOSE = 1e-8  # relative, in float64; the promise is 1e-6


def numbers(rows):
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]


def tensors(state):
    """Every tensor of a nested state, by its path."""
    if isinstance(state, torch.Tensor):
        return {"": state.double()}
    pairs = state.items() if isinstance(state, dict) else enumerate(state)
    nested = {k: v for k, v in pairs if isinstance(v, dict | list | tuple | torch.Tensor)}
    return {f"{k}/{n}": t for k, v in nested.items() for n, t in tensors(v).items()}


def close(found, wanted, tolerance=CLOSE):
    """Rows, final weights and state of the optimizer agree."""
    assert found.status == wanted.status
    ours, theirs = numbers(found.rows), numbers(wanted.rows)
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=tolerance, abs=tolerance, nan_ok=True)
    states = [tensors(state) for state in (last(found), last(wanted))]
    assert states[0].keys() == states[1].keys() and states[0]
    for name, tensor in states[1].items():
        if "bulk" in name:  # eigenvectors, which have no sign
            states[0][name], tensor = states[0][name].abs(), tensor.abs()
        assert torch.allclose(states[0][name], tensor, rtol=tolerance, atol=tolerance), name


def last(run):
    state, _ = load_checkpoint(run.path)
    return {name: state[name] for name in ("model", "optimizer", "objective")}
