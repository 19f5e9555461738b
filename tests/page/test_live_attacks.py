"""The live server under attack: limits, other sites' pages, slow clients, and what is made once."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import ExitStack

import pytest
from made_runs import make_run, row

from toosure.page import live_answers
from toosure.page.live import MAX_BODY, SharedAnswer, make_app, serve
from toosure.runs import RunFolder
from waiting import LIMIT, free_port, wait_until

LOCAL = "http://127.0.0.1:8765"
PATHS = ("/", "/body", "/sections", "/report")


@pytest.fixture
def client_of():
    testing = pytest.importorskip("starlette.testclient")
    return lambda folder: testing.TestClient(make_app(folder), base_url=LOCAL)


@pytest.fixture
def client(client_of, runs_folder):
    return client_of(runs_folder)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b" " * (MAX_BODY + 1), 413),
        (b'{"cursors": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", 400),
        (b'{"cursors": {"a": [1e400, 1]}}', 400),
        (b'{"cursors": {"a": [' + b"9" * 400 + b", 1]}}", 400),
        (b'{"cursors": {"a": [1, true]}}', 400),
        (b'{"cursors": {"a": "12"}}', 400),
        (b'{"cursors": {"a": [1, -1], "b": [1, 9999999999999999]}}', 200),
        (b"\xff\xfe", 400),
    ],
)
def test_questions_are_limited(client, body, code):
    assert client.post("/rows", content=body).status_code == code


def test_a_question_without_end_is_cut_off(client):
    def endless():
        for _ in range(1000):
            yield b" " * 1000

    assert client.post("/rows", content=endless()).status_code == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_pages_of_other_sites_are_refused(client, headers):
    for path in PATHS:
        assert client.get(path, headers=headers).status_code == 403
    assert client.post("/rows", json={"cursors": {}}, headers=headers).status_code == 403


def test_our_own_page_and_a_link_to_it_are_answered(client):
    own = {"Origin": LOCAL, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/rows", json={"cursors": {}}, headers=own).status_code == 200
    assert client.get("/", headers={"Sec-Fetch-Site": "none"}).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    link |= {"Sec-Fetch-Dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/report", headers=link).status_code == 403


def test_policy_of_every_answer(client):
    for path in (*PATHS, "/no-such-page"):
        policy = client.get(path).headers["content-security-policy"]
        assert "base-uri 'none'" in policy and "form-action 'none'" in policy


def test_what_did_not_change_is_made_once(client_of, tmp_path, monkeypatch):
    made = []
    body = live_answers.body
    monkeypatch.setattr(live_answers, "body", lambda *args: made.append(1) or body(*args))
    path = make_run(tmp_path / "r", steps=range(3))
    client = client_of(tmp_path)
    first = client.get("/").text
    assert client.get("/").text == first and len(made) == 1

    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(3)) + "\n")
    assert client.get("/").text != first and len(made) == 2
    (path / "config.json").write_text('{"optimizer": "muon"}')
    assert "muon" in client.get("/").text and len(made) == 3
    (path / "status.json").write_text('{"status": null}')
    assert "must hold a status" in client.get("/").text and len(made) == 4


def test_who_waited_gets_what_was_begun_meanwhile():
    """Ten who ask while an answer is made are served by one more, not by ten."""
    made = []

    async def ask_often():
        begun, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def make():
            made.append(1)
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(LIMIT)
            return b"answer"

        shared = SharedAnswer(make, asyncio.Lock())
        first = asyncio.create_task(shared.get())
        await begun.wait()
        others = [asyncio.create_task(shared.get()) for _ in range(10)]
        await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.gather(first, *others) == [b"answer"] * 11

    asyncio.run(ask_often())
    assert len(made) == 2


def test_one_odd_run_does_not_take_the_page_down(client_of, tmp_path):
    make_run(tmp_path / "sound", {"optimizer": "sound"})
    odd = make_run(tmp_path / "odd", {"optimizer": "odd"})
    (odd / "status.json").write_text('{"status": null}')
    os.mkfifo(odd / "snapshots" / "95.npz")
    strange = {"val/loss": 1e308, "train/certificate_failed": "x", "own": [1], "[/b]": 10**29}
    with (odd / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(10**12) | strange) + "\n" + '{"step": 1e400}\n')
    client = client_of(tmp_path)
    for path in PATHS:
        answer = client.get(path)
        assert answer.status_code == 200
        for said in ("sound", "must hold a status", "snapshots/95.npz", "metrics.jsonl cannot be"):
            assert said in answer.text
    assert client.post("/rows", json={"cursors": {"odd": [0, 0]}}).status_code == 200


def test_answers_about_many_runs_are_bounded(client_of, tmp_path, monkeypatch):
    for name in "abc":
        make_run(tmp_path / name, steps=range(5))
    monkeypatch.setattr(live_answers, "MAX_NUMBERS", 10)
    cursors = {name: [0, 0] for name in "abc"}
    found = client_of(tmp_path).post("/rows", json={"cursors": cursors}).json()["runs"]
    assert list(found) == ["a"]  # the others come with the next question


def test_runs_that_come_later_are_shown(client_of, tmp_path):
    client = client_of(tmp_path / "runs")
    assert "Waiting for the first run" in client.get("/").text
    before = client.post("/rows", json={"cursors": {}}).json()["structure"]
    make_run(tmp_path / "runs" / "first", {"optimizer": "first"})
    assert client.post("/rows", json={"cursors": {}}).json()["structure"] != before
    assert "Over-confident" in client.get("/").text
    assert RunFolder(tmp_path / "never").refresh() == []


def test_serve_says_that_it_waits(monkeypatch, tmp_path):
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setattr(uvicorn, "run", lambda *args, **options: None)
    said = []
    serve(tmp_path / "runs", "127.0.0.1", 1234, said.append)
    assert "no folder" in said[0] and said[1].startswith("live: ")


# ---- connections --------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    """`toosure live` with small limits, in a process of its own."""
    pytest.importorskip("uvicorn")
    make_run(tmp_path / "runs" / "r", steps=range(5))
    port = free_port()
    code = (
        "from toosure.page import connections, live; connections.MAX_CONNECTIONS = 8; "
        "connections.STALL_SECONDS = 0.5; connections.CHECK_SECONDS = 0.1; "
        "live.BODY_SECONDS = 0.5; "
        f"live.serve({str(tmp_path / 'runs')!r}, port={port})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    wait_until(lambda: is_answered(port), process)
    yield port
    process.terminate()
    process.wait(LIMIT)


def is_answered(port):
    question = json.dumps({"cursors": {}}).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/rows", question, LIMIT) as answer:
            return answer.status == 200
    except OSError:
        return False


def connected(port, sent):
    client = socket.create_connection(("127.0.0.1", port), LIMIT)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(sent)
    return client


def all_of(client):
    """Read until the server ends the connection."""
    found = b""
    try:
        while part := client.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


HEAD = b"Host: 127.0.0.1\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n" + HEAD + b"a:"])
def test_a_client_that_does_not_ask_is_let_go(server, sent):
    with connected(server, sent) as client:
        assert all_of(client) == b""  # ended by the server, however long it takes


def test_a_body_that_does_not_come_is_let_go(server):
    with connected(
        server, b"POST /rows HTTP/1.1\r\n" + HEAD + b"Content-Length: 9\r\n\r\n"
    ) as client:
        assert b"408" in all_of(client)[:20]


def test_a_flood_of_clients_that_do_not_read_starves_nobody(server):
    with ExitStack() as slow:
        for _ in range(40):
            slow.enter_context(connected(server, b"GET / HTTP/1.1\r\n" + HEAD + b"\r\n"))
        wait_until(lambda: is_answered(server))  # a page that was pushed out asks again
