"""Wait for what another process does, however busy the machine is."""

import random
import socket
import time
from pathlib import Path

LIMIT = 1200.0  # seconds; it ends what hangs, and is no measure of how long a thing may take


def wait_until(condition, process=None, doing="it"):
    """Wait for an event; a `process` that ended without bringing it about is reported at once."""
    end = time.monotonic() + LIMIT
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            raise AssertionError(f"{doing} did not happen: {ending_of(process)}")
        assert time.monotonic() < end, f"{doing} did not happen within {LIMIT:,.0f} s"
        time.sleep(0.02)


def ending_of(process):
    """Say how a process ended, and what it wrote where that can be read."""
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    return "\n".join(
        [f"the process ended with {process.returncode}", *(str(s.read()) for s in streams)]
    )


def free_port():
    """Return a port that is free, and stays so until a server takes it.

    It lies below those that the system gives to whoever asks for any port, and above those of
    Ray's workers.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.is_file() else 32_768
    while True:
        port = random.SystemRandom().randrange(20_000, first if first > 22_000 else 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
