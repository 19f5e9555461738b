"""Wait for what another process does, however busy the machine is."""

import time


def wait_until(condition, process=None, seconds=600.0, doing="it"):
    """Wait for the event; the limit only guards against a wait without end.

    A `process` that has ended and can no longer bring the event about is reported at once.
    """
    end = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            raise AssertionError(f"{doing} did not happen: {ending(process)}")
        assert time.monotonic() < end, f"{doing} did not happen within {seconds:,.0f} s"
        time.sleep(0.02)


def ending(process):
    """Say how a process ended, and what it wrote where that was kept."""
    written = [stream.read() for stream in (process.stdout, process.stderr) if stream]
    return "\n".join([f"the process ended with {process.returncode}", *map(str, written)])
