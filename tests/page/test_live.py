"""The live server: who may ask, what is served, and a page that keeps up and outlives a restart."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from made_runs import HOSTILE, make_run, row, snapshot

from toosure.page.live import make_app, serve
from toosure.page.live_answers import MAX_ROWS
from toosure.runs import RunWriter
from waiting import LIMIT, free_port, wait_until

LOCAL = "http://127.0.0.1:8765"


@pytest.fixture
def client_of():
    testing = pytest.importorskip("starlette.testclient")
    return lambda folder, token="", base=LOCAL: testing.TestClient(
        make_app(folder, token), base_url=base
    )


@pytest.fixture
def client(client_of, runs_folder):
    return client_of(runs_folder)


def test_page_is_the_report_and_more(client):
    answer = client.get("/")
    assert answer.status_code == 200 and "4 of 5 runs are over-confident" in answer.text
    assert HOSTILE not in answer.text
    assert "connect-src 'self'" in answer.headers["content-security-policy"]


def test_a_file_cut_off_is_a_warning(client_of, tmp_path):
    run = make_run(tmp_path / "r")
    file = run / "snapshots" / "90.npz"
    file.write_bytes(file.read_bytes()[:200])
    client = client_of(tmp_path)
    for path in ("/", "/body", "/sections", "/report"):
        answer = client.get(path)
        assert answer.status_code == 200 and "snapshots/90.npz cannot be read" in answer.text


@pytest.mark.parametrize("path", ["/", "/body", "/sections", "/report"])
def test_other_names_of_this_machine_are_refused(client_of, runs_folder, path):
    """A page of another site whose name was pointed at 127.0.0.1 (DNS rebinding) gets nothing."""
    for base in ("http://evil.example:8765", "http://127.0.0.1.evil.example", "http://10.0.0.1"):
        assert client_of(runs_folder, base=base).get(path).status_code == 403
    for base in ("http://localhost:9999", "http://[::1]:8765"):  # 9999: an ssh tunnel
        assert client_of(runs_folder, base=base).get(path).status_code == 200


def test_rows_are_refused_to_others_too(client_of, runs_folder):
    client = client_of(runs_folder, base="http://evil.example")
    assert client.post("/rows", json={"cursors": {}}).status_code == 403


def test_elsewhere_a_token_is_needed(client_of, runs_folder):
    client = client_of(runs_folder, token="secret", base="http://gpu.example:8765")
    assert client.get("/").status_code == 403
    assert client.get("/?token=wrong").status_code == 403
    assert client.get("/?token=secret").status_code == 200
    assert client.post("/rows?token=secret", json={"cursors": {}}).status_code == 200
    assert client.post("/rows", json={"cursors": {}}).status_code == 403


def test_serve_makes_a_token_for_other_hosts(monkeypatch, runs_folder):
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setattr(uvicorn, "run", lambda *args, **options: None)
    said = []
    serve(runs_folder, "127.0.0.1", 1234, said.append)
    serve(runs_folder, "0.0.0.0", 1234, said.append)
    serve(runs_folder, "0.0.0.0", 1234, said.append)
    assert said[0] == "live: http://127.0.0.1:1234/"
    assert "?token=" in said[1] and len(said[1]) > 50 and said[1] != said[2]


def test_serve_says_where_it_waits_for_runs(monkeypatch, runs_folder, tmp_path):
    monkeypatch.setattr(pytest.importorskip("uvicorn"), "run", lambda *args, **options: None)
    monkeypatch.setenv("TOOSURE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    for folder, words in (
        (runs_folder, "live: "),
        (tmp_path / "none" / "runs", f"there is no folder {tmp_path}/none/runs yet"),
        (tmp_path / "empty", f"there are no runs in {tmp_path}/empty yet"),
        (f"file://{runs_folder}", "live: "),
        (f"file://{tmp_path}/none", f"there is no folder file://{tmp_path}/none yet"),
    ):
        said = []
        serve(folder, "127.0.0.1", 1234, said.append)
        assert said[0].startswith(words), said
        assert said[-1].startswith("live: ") and ("Ctrl-C" in said[0]) == (len(said) == 2)


@pytest.mark.parametrize(
    "path",
    [
        *("/../secret.txt", "/%2e%2e/secret.txt", "/a0/metrics.jsonl", "/rows/../../secret.txt"),
        *("/report/../../../etc/passwd", "//etc/passwd", "/body/%2e%2e%2fsecret.txt"),
    ],
)
def test_no_path_leads_to_a_file(client, runs_folder, path):
    (runs_folder.parent / "secret.txt").write_text("the secret")
    answer = client.get(path)
    assert answer.status_code in (404, 405) and "the secret" not in answer.text


def test_links_out_of_the_folder_are_not_followed(client_of, tmp_path):
    outside = make_run(tmp_path / "outside", {"optimizer": "private"})
    folder = tmp_path / "runs"
    make_run(folder / "mine", {"optimizer": "mine"})
    (folder / "linked").symlink_to(outside)
    partly = make_run(folder / "partly", {"optimizer": "partly"})
    (partly / "config.json").unlink()
    (partly / "config.json").symlink_to(outside / "config.json")
    rows = make_run(folder / "linkedrows", {"optimizer": "linkedrows"})
    (rows / "metrics.jsonl").unlink()
    (rows / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    client = client_of(folder)
    for path in ("/", "/body", "/sections", "/report"):
        text = client.get(path).text
        assert "mine" in text
        assert not any(word in text for word in ('"private"', "private<"))
        for file in ("partly/config.json", "linkedrows/metrics.jsonl"):
            assert f"{file} cannot be read: it is a link, not a file" in text


def test_rows_come_by_increments(client_of, tmp_path):
    path = make_run(tmp_path / "r", {"optimizer": "sgd:lr=0.5"}, steps=range(3))
    client = client_of(tmp_path)
    first = client.get("/body").json()
    assert first["cursors"]["r"][1] == 3
    assert client.post("/rows", json={"cursors": first["cursors"]}).json()["runs"] == {}
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(3, ece=0.3)) + "\n" + '{"step": 4, ')
    answer = client.post("/rows", json={"cursors": first["cursors"]}).json()
    columns = answer["runs"]["r"]["columns"]
    assert columns["step"] == [3] and columns["val/ece"] == [30] and columns["stability"] == [20]
    assert answer["structure"] == first["structure"]
    again = client.post("/rows", json={"cursors": {"r": answer["runs"]["r"]["cursor"]}}).json()
    assert again["runs"] == {}


def test_a_fresh_server_goes_on_where_the_asker_was(client_of, tmp_path):
    make_run(tmp_path / "r", steps=range(5))
    cursors = client_of(tmp_path).get("/body").json()["cursors"]
    inode, count = cursors["r"]
    answer = client_of(tmp_path).post("/rows", json={"cursors": {"r": [inode, count - 2]}}).json()
    assert answer["runs"]["r"]["columns"]["step"] == [3, 4]


def test_a_run_that_is_cut_back_or_new_changes_the_structure(client_of, tmp_path):
    make_run(tmp_path / "r", steps=range(5))
    client = client_of(tmp_path)
    before = client.get("/body").json()["structure"]
    with RunWriter(tmp_path / "r") as writer:
        writer.cut_back(2)
    cut = client.post("/rows", json={"cursors": {}}).json()["structure"]
    make_run(tmp_path / "s", steps=range(2))
    new = client.post("/rows", json={"cursors": {}}).json()["structure"]
    assert len({before, cut, new}) == 3


def test_answers_are_bounded(client_of, tmp_path):
    path = make_run(tmp_path / "r", steps=[0])
    line = json.dumps({"step": 1, "val/ece": 0.1}) + "\n"
    (path / "metrics.jsonl").write_text(line * (MAX_ROWS + 10))
    answer = client_of(tmp_path).post("/rows", json={"cursors": {"r": [0, 0]}}).json()
    assert answer["runs"]["r"]["cursor"][1] == MAX_ROWS


@pytest.mark.parametrize("body", [b"", b"[]", b'{"cursors": 3}', b'{"cursors": {"r": ["x", 1]}}'])
def test_nonsense_is_answered_politely(client, body):
    assert client.post("/rows", content=body).status_code == 400


def test_an_empty_folder_waits(client_of, tmp_path):
    assert "Waiting for the first run" in client_of(tmp_path).get("/").text
    assert client_of(tmp_path).get("/report").status_code == 404
    assert client_of(tmp_path).get("/sections").status_code == 200
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "runs"):  # where no folder can come
        with pytest.raises(ValueError, match="file is not a folder"):
            make_app(path)


def test_report_is_saved_as_a_file(client):
    answer = client.get("/report")
    assert "attachment" in answer.headers["content-disposition"]
    assert "connect-src" not in answer.text and "live.js" not in answer.text


# ---- in a browser -------------------------------------------------------------------------------


class Server:
    """`toosure live` as a process of its own, to be ended and begun again."""

    def __init__(self, folder):
        self.port = free_port()
        self.folder, self.address = folder, f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self):
        command = ["-m", "toosure", "live", str(self.folder), "--port", str(self.port)]
        self.process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
        wait_until(self.answers, self.process)

    def answers(self):
        try:
            with urllib.request.urlopen(self.address, timeout=LIMIT) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LIMIT)


@pytest.fixture
def server(tmp_path, browser):  # no browser: no server
    make_run(tmp_path / "runs" / "first", {"optimizer": "sgd:lr=0.1", "steps": 9}, steps=range(5))
    server = Server(tmp_path / "runs")
    yield server
    if server.process.poll() is None:
        server.stop()


def append(folder, step, **numbers):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(step, **numbers)) + "\n")


@pytest.mark.xdist_group("browser")
def test_page_keeps_up_and_survives_a_restart(browser, visit, ask, server):
    ece = "(toosure.drawAll(), document.querySelector('[data-role=ece]').chart.data)"
    last = f"Array.from({ece}[0].x).at(-1)"
    visit(server.address)
    wait_until(lambda: ask("document.getElementById('said').textContent").startswith("live"))
    assert not ask("document.title").startswith("Take")
    first = server.folder / "first"
    append(first, 50, ece=0.3)
    wait_until(lambda: ask(last) == 50)
    assert ask(f"Array.from({ece}[0].y).at(-1)") == pytest.approx(30)
    path, ends = ask(
        "document.querySelector('[data-role=phase]').chart.data.map(t => [t.y, t.customdata])"
    )
    assert path[0][-1] == ends[0][-1] == pytest.approx(30) and path[1][-1] == ends[1][-1] == 50
    np.savez(first / "snapshots" / "50.npz", **snapshot(7))
    wait_until(lambda: ask("document.getElementById('moment-said').textContent") == "step 50")
    cells = "document.querySelector('#comparison td:nth-child(4)').textContent"
    wait_until(
        lambda: ask("document.querySelector('#ranking td:nth-child(5)').textContent") == "30.00"
    )
    wait_until(lambda: ask(cells) == "30.00")
    inner = "document.querySelector('#provenance details details')"  # opened by a reader
    browser.execute_script(f"{inner}.open = true")
    append(first, 55, ece=0.3)
    rows = "document.querySelector('#provenance td:nth-child(4)').textContent"
    wait_until(lambda: ask(rows) == "7")
    assert ask(f"{inner}.open")
    make_run(server.folder / "second", {"optimizer": "muon", "steps": 9}, steps=range(3))
    wait_until(lambda: ask("document.querySelectorAll('.chip').length") == 2)
    decision = "document.querySelector('h1').textContent"
    assert ask(decision).startswith("Take") and ask("document.title").startswith("Take")
    assert browser.get_log("browser") == []

    server.stop()
    wait_until(lambda: "waiting" in ask("document.getElementById('said').textContent"))
    append(first, 60)
    server.start()
    wait_until(lambda: ask(last) == 60)
    assert "live" in ask("document.getElementById('said').textContent")


@pytest.mark.xdist_group("browser")
def test_progress_and_what_happens_is_announced(browser, visit, ask, server):
    """A run that goes on has its pace; one that becomes too sure, or diverges, is told on top."""
    config = {"optimizer": "adamw:lr=0.1", "steps": 100, "every": 5, "measure": ["gn_sharpness"]}
    with RunWriter(server.folder / "going", config) as writer:
        writer.write_environment({"device": "cpu", "command": "toosure train --optimizer adamw"})
        for step in (0, 10, 20):
            writer.append(row(step, gap=-0.2))
        writer.write_snapshot(20, snapshot(3, gap=-0.2))
        writer.set_status("running", 20)
        visit(server.address)
        cells = "[...document.querySelectorAll('#progress tbody td')].map(c => c.textContent)"
        wait_until(lambda: ask("!!document.querySelector('#progress progress')"))
        name, status, far, left, rate, measured, command = ask(cells)
        assert (name, status, command) == ("adamw:lr=0.1, steps\xa0100", "running", "copy")
        assert "20 of 100" in far and left == "8 s" and rate == "1"  # ten steps a second
        assert measured.split() == ["metrics,", "GN", "sharpness,", "every", "5", "steps"]
        typed = "document.querySelector('#progress [data-do=copy-text]').dataset.text"
        assert ask(typed) == "toosure train --optimizer adamw"

        wait_until(lambda: ask("document.getElementById('said').textContent").startswith("live"))
        writer.append(row(30, gap=0.3))
        alerts = "document.getElementById('alerts').textContent"
        wait_until(lambda: "100: over-confident by 30" in ask(alerts))
        writer.set_status("diverged", 30)
    wait_until(lambda: "100: diverged" in ask(alerts))
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_a_thousand_rows_a_second_do_not_stall_the_page(browser, visit, ask, server):
    visit(server.address)
    browser.execute_script(
        "window.gaps = []; let before = performance.now(); setInterval(() => {"
        "const now = performance.now(); gaps.push(now - before); before = now }, 20)"
    )
    step = 100
    for _ in range(15):
        start = time.monotonic()
        lines = [json.dumps(row(step + i, ece=0.1 + 0.001 * (i % 7))) for i in range(200)]
        with (server.folder / "first" / "metrics.jsonl").open("a") as file:
            file.write("\n".join(lines) + "\n")
        step += 200
        time.sleep(max(0, 0.2 - (time.monotonic() - start)))
    last = (
        "(toosure.drawAll(), Array.from(document.querySelector('[data-role=ece]')"
        ".chart.data[0].x).at(-1))"
    )
    wait_until(lambda: ask(last) == step - 1)
    assert ask("document.querySelector('[data-role=ece]').chart.data[0].x.length") < 5000
    drawing = ask("(s => (toosure.drawAll(), performance.now() - s))(performance.now())")
    # The longest the page did not answer, ms: as long as a few drawings take on this machine.
    assert ask("Math.max(...gaps)") < max(2000, 20 * drawing)
    assert browser.get_log("browser") == []


def test_a_port_that_is_taken_is_one_sentence(runs_folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"127.0.0.1:{port} cannot be listened on"):
            serve(runs_folder, port=port, say=lambda line: None)
