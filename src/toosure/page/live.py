"""The live page: a small server of one folder of runs, which serves numbers and never files.

Loopback by default; elsewhere only with a token. Nothing in a request names a path.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from toosure.figures import panel_keys, stability
from toosure.figures.trajectory import NAMES, values_of
from toosure.page.html import POLICY, in_script, page
from toosure.page.page_runs import PageRuns
from toosure.page.report import SCRIPTS, body, report_of, title_of
from toosure.page.sections import SECTIONS
from toosure.page.sections.moments import frames
from toosure.runs import Run, RunFolder

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")
MAX_ROWS = 20_000  # of a run in one answer; the rest comes with the next
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{POLICY}; connect-src 'self'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Answer = Callable[[RunFolder, bytes], "Response"]  # of the runs and the body of a request


def make_app(folder: str | Path, token: str = "") -> "Starlette":
    """Return the ASGI application; with a token every request must carry it."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise ValueError("the live page needs starlette: pip install 'toosure[live]'") from error
    runs = RunFolder(folder)

    def guarded(path: str, answer: Answer, method: str = "GET") -> "Route":
        async def endpoint(request: "Request") -> "Response":
            return await guard(request, runs, answer, token)

        return Route(path, endpoint, methods=[method])

    return Starlette(
        routes=[
            guarded("/", answer_page),
            guarded("/body", answer_body),
            guarded("/sections", answer_sections),
            guarded("/report", answer_report),
            guarded("/rows", answer_rows, "POST"),
        ]
    )


async def guard(request: "Request", runs: RunFolder, answer: Answer, token: str) -> "Response":
    """Answer only who may ask: the token's bearer, or this machine under its own name.

    The name in the Host header is checked against DNS rebinding, where a page of another site
    gives its name the address 127.0.0.1.
    """
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import PlainTextResponse

    sent = request.query_params.get("token", "")
    if token and not secrets.compare_digest(sent.encode(), token.encode()):
        return PlainTextResponse("a token is needed: use the printed address", 403, HEADERS)
    if not token and host_of(request.headers.get("host", "")) not in LOCAL:
        return PlainTextResponse("ask for 127.0.0.1 or localhost", 403, HEADERS)
    question = await request.body() if request.method == "POST" else b""

    def locked() -> "Response":
        with runs.lock:
            return answer(runs, question)

    return await run_in_threadpool(locked)


def host_of(header: str) -> str:
    """Return the name in a Host header, without the port.

    >>> host_of("localhost:8000"), host_of("[::1]:80"), host_of("evil.example")
    ('localhost', '[::1]', 'evil.example')
    """
    return header[: header.find("]") + 1] if header.startswith("[") else header.split(":")[0]


def answer_page(folder: RunFolder, _: bytes) -> "Response":
    """Answer with the page as it is now, which then asks for what is new."""
    from starlette.responses import HTMLResponse

    runs = folder.refresh()
    known = in_script(json.dumps(standing(runs) | {"cursors": cursors_of(runs)}))
    bar = (
        '<div id="bar"><span id="pulse"></span><span id="said" role="status">…</span>'
        '<a id="save" class="plain" download="report.html" href="report">save as report</a></div>'
    )
    inner = f'{bar}<div id="all">{inside(runs, folder)}</div>'
    script = f'<script type="application/json" id="cursors">{known}</script>'
    title = title_of(runs, folder.folder.name) if runs else "toosure live"
    policy = f"{POLICY}; connect-src 'self'"
    html = page(title, inner + script, more=(*SCRIPTS, "live.js"), policy=policy)
    return HTMLResponse(html, headers=HEADERS)


def inside(runs: Sequence[Run], folder: RunFolder) -> str:
    """Return the inside of the page, or that it waits."""
    if runs:
        return body(runs, str(folder.folder))
    return (
        f'<header><p class="source">toosure · {escape(str(folder.folder))}</p>'
        "<h1>Waiting for the first run</h1></header>"
    )


def answer_body(folder: RunFolder, _: bytes) -> "Response":
    """Answer with all sections anew, for when runs came or went."""
    runs = folder.refresh()
    answer = {"html": inside(runs, folder), "cursors": cursors_of(runs)}
    return as_json(answer | standing(runs))


def answer_sections(folder: RunFolder, _: bytes) -> "Response":
    """Answer with the sections of words and numbers, and the snapshots of the slider."""
    runs = folder.refresh()
    if not runs:
        return as_json({"html": {}, "frames": []})
    page_runs = PageRuns(runs, str(folder.folder))
    snapshots = frames(page_runs)  # read first: what is damaged is among the warnings
    html = {
        name: make(page_runs) for section in SECTIONS for name, make in section.replaced().items()
    }
    return as_json({"html": html, "frames": snapshots})


def answer_report(folder: RunFolder, _: bytes) -> "Response":
    """Answer with the finished page, to be saved."""
    from starlette.responses import HTMLResponse, PlainTextResponse

    runs = folder.refresh()
    if not runs:
        return PlainTextResponse("there are no runs yet", 404, HEADERS)
    named = HEADERS | {"Content-Disposition": 'attachment; filename="report.html"'}
    return HTMLResponse(report_of(runs, str(folder.folder)), headers=named)


def answer_rows(folder: RunFolder, question: bytes) -> "Response":
    """Answer with the rows that came after the cursors of the asker, in the units of the panels."""
    from starlette.responses import PlainTextResponse

    try:
        cursors = json.loads(question)["cursors"]
        known = {str(k): (int(v[0]), int(v[1])) for k, v in cursors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return PlainTextResponse('send {"cursors": {"run": [inode, rows]}}', 400, HEADERS)
    runs = folder.refresh()
    new = {run.id: new_rows(run, known[run.id][1]) for run in runs if is_behind(run, known)}
    return as_json({"runs": new} | standing(runs))


def is_behind(run: Run, known: dict[str, tuple[int, int]]) -> bool:
    return run.id in known and 0 <= known[run.id][1] < run.count


def new_rows(run: Run, start: int) -> dict[str, Any]:
    """Return the rows of a run from `start` on: one column per line on the page."""
    end = min(run.count, start + MAX_ROWS)
    lines = {
        f"{split}/{key}": values
        for split in NAMES
        for key in panel_keys([run])
        if (values := values_of(run, split, key)) is not None
    }

    edge = stability(run)
    if edge is not None:
        lines["stability"] = edge
    lines["step"] = run.columns["step"]
    columns = {key: rounded(values[start:end]) for key, values in lines.items()}
    return {"cursor": [run.file_version[0], end], "columns": columns}


def rounded(values: np.ndarray) -> list[float | None]:
    """Return numbers that JSON can carry, to six digits; null where there is none."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.tolist()]


def cursors_of(runs: Sequence[Run]) -> dict[str, tuple[int, int]]:
    return {run.id: (run.file_version[0], run.count) for run in runs}


def standing(runs: Sequence[Run]) -> dict[str, Any]:
    """Return how things stand: which files there are, how each run stands, how many go on."""
    files = [(run.id, *run.file_version, measured(run), has_scaling(run)) for run in runs]
    statuses = [(run.id, run.status, run.count, len(run.snapshots)) for run in runs]
    return {
        "structure": digest(files),
        "stamp": digest(statuses),
        "running": sum(status == "running" for _, status, *_ in statuses),
        "total": len(runs),
    }


def measured(run: Run) -> list[str]:
    """Return the keys under which a run has numbers."""
    return sorted(key for key in run.columns if run.has(key))


def has_scaling(run: Run) -> bool:
    return (run.path / "temperature.json").is_file() or (run.path / "predictions.npz").is_file()


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def as_json(value: object) -> "Response":
    from starlette.responses import Response

    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, headers=HEADERS, media_type="application/json")


def serve(
    folder: str | Path,
    host: str = "127.0.0.1",
    port: int = 8765,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the live page of a folder until Ctrl-C; `say` is told the address."""
    try:
        import uvicorn
    except ImportError as error:
        raise ValueError("the live page needs uvicorn: pip install 'toosure[live]'") from error
    token = "" if host in LOCAL else secrets.token_urlsafe(24)
    app = make_app(folder, token)
    shown = f"[{host}]" if ":" in host else host
    say(f"live: http://{shown}:{port}/" + (f"?token={token}" if token else ""))
    uvicorn.run(app, host=host, port=port, log_level="warning")
