"""Three hundred hostile requests against the live page on 127.0.0.1, and a flood of slow readers.

    python benchmarks/hostile_requests.py [--count 300] [--slow 600] [--seed 0]

The server is a process of its own and serves a temporary folder of twenty runs. Every request must
be refused or answered (never with a 5xx), the server must still answer after each, and it must
write no traceback. Then so many clients ask for the page and do not read it, while an honest one
asks for rows. Bounded in count and in time.
"""

import argparse
import json
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "page"))
from made_runs import make_run

TIME_LIMIT = 30.0  # seconds for one request
AT_ONCE = 16  # some wait until the server lets them go
ROWS = b'{"cursors": {}}'
Request = Callable[[random.Random], bytes]


def message(line: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request; `headers` replace the usual ones, with _ for -."""
    usual = {"Host": "127.0.0.1", "Connection": "close", "Content-Length": str(len(body))}
    usual |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{line} HTTP/1.1", *(f"{name}: {value}" for name, value in usual.items())]
    return "\r\n".join(lines).encode("latin1") + b"\r\n\r\n" + body


def large_body(draw: random.Random) -> bytes:
    return message("POST /rows", b" " * draw.choice([65_537, 1 << 20, 8 << 20]))


def false_length(draw: random.Random) -> bytes:
    length = draw.choice(["9" * 15, "-1", "1e9", "0x10", "9" * 5000, "70000"])
    return message("POST /rows", b"{", Content_Length=length)


def endless_chunks(draw: random.Random) -> bytes:
    part = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = message("POST /rows", Transfer_Encoding="chunked")
    return head.replace(b"Content-Length: 0\r\n", b"") + part * draw.choice([2, 50])


def odd_json(draw: random.Random) -> bytes:
    depth = draw.choice([10, 1_000, 30_000])
    body = draw.choice(
        [
            b"[" * depth + b"]" * depth,
            b'{"cursors":' * depth + b"1" + b"}" * depth,
            b'{"cursors": {"r0": [1e400, -1e400]}}',
            b'{"cursors": {"r0": [' + b"9" * 4_000 + b", 0]}}",
            b'{"cursors": {"r0": [NaN, Infinity]}}',
            b'{"cursors": {"r0": [true, null]}}',
            b'{"cursors": {"\\ud800": [1, 1]}}',
            b'{"cursors": {"r0": [0, -99999999999999999999]}}',
            b"\xff\xfe\x00",
            b"",
        ]
    )
    return message("POST /rows", body)


def all_rows(draw: random.Random) -> bytes:
    """A question that asks for everything, again and again."""
    cursors = {f"r{n}": [0, 0] for n in range(20)}
    return message("POST /rows", json.dumps({"cursors": cursors}).encode())


def other_site(draw: random.Random) -> bytes:
    headers = draw.choice(
        [
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Host": "evil.example"},
            {"Host": "127.0.0.1.evil.example"},
            {"Host": "[::1"},
            {"Host": ""},
        ]
    )
    line = draw.choice(["GET /", "GET /body", "GET /report", "POST /rows"])
    return message(line, ROWS if line.startswith("POST") else b"", **headers)


def odd_path(draw: random.Random) -> bytes:
    paths = ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/r0/config.json"]
    paths += ["/?token=" + "a" * 60_000, "/%ff%fe", "/?token=%ff", "/\x7f", "*", "http://x/"]
    return message(
        f"{draw.choice(['GET', 'PUT', 'DELETE', 'OPTIONS', 'HEAD'])} {draw.choice(paths)}"
    )


def odd_headers(draw: random.Random) -> bytes:
    return draw.choice(
        [
            message("GET /", **{f"X{n}": "a" * 100 for n in range(2_000)}),
            message("GET /", X="a" * 200_000),
            message("GET /", Upgrade="websocket", Connection="Upgrade"),
            message("GET /", Upgrade="h2c", Connection="Upgrade"),
            message("GET /", Range="bytes=0-,0-,0-"),
            message("GET /", Expect="100-continue"),
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        ]
    )


def noise(draw: random.Random) -> bytes:
    return draw.choice(
        [
            bytes(draw.randrange(256) for _ in range(draw.choice([1, 100, 5_000]))),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a browser that wants TLS
            b"\r\n" * 1_000,
            b"GET " + b"/" * 100_000,
            message("GET /") * 50,
        ]
    )


KINDS: tuple[Request, ...] = (
    *(large_body, false_length, endless_chunks, odd_json, all_rows),
    *(other_site, odd_path, odd_headers, noise),
)


class Server:
    """`toosure live` of a folder, as a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "toosure", "live", str(folder), "--port", str(self.port)]
        self.log = (folder.parent / "log").open("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)
        end = time.monotonic() + 120
        while not self.is_up():
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"the server did not start: {self.errors()}")
            time.sleep(0.05)

    def is_up(self) -> bool:
        try:
            return self.ask(message("POST /rows", ROWS))[0] == 200
        except OSError:
            return False

    def ask(self, sent: bytes) -> tuple[int, bytes]:
        """Send bytes and return the status and all that came; 0 where nothing did."""
        with socket.create_connection(("127.0.0.1", self.port), TIME_LIMIT) as client:
            found = b""
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was sent
                client.sendall(sent)
            try:
                while part := client.recv(1 << 20):
                    found += part
            except ConnectionResetError:
                pass
        status = re.match(rb"HTTP/1\.1 (\d+)", found)
        return int(status[1]) if status else 0, found

    def errors(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def timed(ask: Callable[[], object], times: int = 20) -> float:
    """Return the median time of a question, in milliseconds."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        seconds.append(time.perf_counter() - began)
    return 1000 * median(seconds)


def attack(
    server: Server, count: int, seed: int
) -> tuple[Counter[str], Counter[str], Counter[int]]:
    """Send hostile requests; return how many of each kind, how many went wrong, and the answers."""
    sent: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    codes: Counter[int] = Counter()

    def send(number: int) -> tuple[str, int, bool]:
        kind = KINDS[number % len(KINDS)]
        code, bad = 0, True
        try:
            code, found = server.ask(kind(random.Random(f"{seed} {number}")))
            bad = code >= 500 or b"root:x:" in found
            bad = bad or (kind is other_site and code == 200)
            bad = bad or not server.is_up()
        except OSError as error:
            print(f"{number} {kind.__name__}: {error}", file=sys.stderr)
        return kind.__name__, code, bad

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, code, bad in pool.map(send, range(count)):
            sent[name] += 1
            codes[code] += 1
            wrong[name] += bad
    return sent, wrong, codes


def flood(server: Server, slow: int) -> tuple[float, float, int]:
    """Open slow readers, ask for rows meanwhile; return median and longest time, and failures."""
    clients = []
    seconds = []
    failures = 0
    for number in range(slow):
        client = socket.create_connection(("127.0.0.1", server.port), TIME_LIMIT)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(message("GET /", Connection="keep-alive"))
        clients.append(client)
        if number % 10 == 9:
            began = time.perf_counter()
            failures += not server.is_up()
            seconds.append(time.perf_counter() - began)
    for client in clients:
        client.close()
    return 1000 * median(seconds), 1000 * max(seconds), failures


def resident(process: int) -> float:
    """Return the memory of a process, MiB."""
    status = Path(f"/proc/{process}/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float("nan")


def main() -> None:
    """Serve, attack, flood, and print the counts."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=300)
    arguments.add_argument("--slow", type=int, default=600)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        first = make_run(folder / "r0", {"optimizer": "sgd:lr=0"}, steps=range(200))
        for number in range(1, 20):
            copy = shutil.copytree(first, folder / f"r{number}")
            (copy / "config.json").write_text(json.dumps({"optimizer": f"sgd:lr={number}"}))
        server = Server(folder)
        try:
            began = time.perf_counter()
            server.ask(message("GET /"))
            made = 1000 * (time.perf_counter() - began)
            kept = timed(lambda: server.ask(message("GET /")))
            rows = timed(server.is_up)
            sent, wrong, codes = attack(server, options.count, options.seed)
            middle, longest, failures = flood(server, options.slow)
            memory = resident(server.process.pid)
            tracebacks = server.errors().count("Traceback")
        finally:
            server.stop()

    print("| request | sent | went wrong |\n|---|---|---|")
    for name, count in sent.items():
        print(f"| {name.replace('_', ' ')} | {count} | {wrong[name]} |")
    print(f"| all | {sent.total()} | {wrong.total()} |")
    answers = ", ".join(f"{code or 'closed'}: {count}" for code, count in sorted(codes.items()))
    print(f"\nAnswers: {answers}. Tracebacks: {tracebacks}.")
    print(f"`GET /` of 20 runs: {made:.0f} ms made, {kept:.1f} ms when nothing changed.")
    print(f"`POST /rows`: {rows:.1f} ms alone; beside {options.slow} slow readers {middle:.1f} ms")
    print(f"(median), {longest:.0f} ms (longest), {failures} failures. Memory: {memory:.0f} MiB.")
    sys.exit(bool(wrong.total() or failures or tracebacks))


if __name__ == "__main__":
    main()
