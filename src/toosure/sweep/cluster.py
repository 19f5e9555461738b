"""A Ray cluster: its address, what a run takes of it, and how to connect."""

import importlib
import math
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_TO_ANSWER = 10


@dataclass(frozen=True)
class Cluster:
    """Name a Ray cluster, and what a run takes of it.

    `address` is "ray" for the cluster of this machine (one is started if there is none),
    "host:port" from one of its nodes, or "ray://host:port" from anywhere. `shared` says whether
    all nodes see the folder of the runs; None finds it out. Where they do not, run folders are
    sent back from the nodes.
    """

    address: str = "ray"
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0
    shared: bool | None = None

    def __post_init__(self) -> None:
        if not self.address:
            raise ValueError(
                "a cluster needs an address: ray, host:port or ray://host:port; got ''"
            )

        needs = (self.cpus_per_run, self.gpus_per_run)
        if not all(math.isfinite(need) and need >= 0 for need in needs):
            raise ValueError(
                "CPUs and GPUs per run must be finite and must not be negative; got "
                f"{self.cpus_per_run:g} and {self.gpus_per_run:g}"
            )
        if self.gpus_per_run > 1 and self.gpus_per_run % 1:
            raise ValueError(
                f"GPUs per run are a share of one or a whole number; got {self.gpus_per_run:g}"
            )


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Join the cluster, and leave it afterwards unless it was joined before."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_ray()
    if ray.is_initialized():
        yield
        return

    check_reachable(address)
    where = {} if address == "ray" else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"no Ray cluster lets us in at {address!r}: {reason} (one that asks for a token needs "
            "RAY_AUTH_MODE=token here, too)"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise if nothing answers at host:port or ray://host:port; Ray itself waits two minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # "ray", or an address of a form that only Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"nothing answers at {address!r}: {error}; `ray status` on a node of the cluster names "
            "its address"
        ) from error


def import_ray() -> Any:
    """Return the package, or say how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ValueError(
            "sweeps on Ray need its package: pip install 'toosure[ray]', or use --workers"
        ) from error


@contextmanager
def token_in(out: Path) -> Iterator[str]:
    """Leave a file in the folder by which a node can tell that it sees the same one."""
    token = out / f".sweep-{uuid.uuid4().hex}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        token.touch()
    except OSError as error:
        raise ValueError(
            f"{out} cannot be written ({error.strerror}): name another folder for the runs"
        ) from error
    try:
        yield token.name
    finally:
        token.unlink(missing_ok=True)
