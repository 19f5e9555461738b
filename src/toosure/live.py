"""The live page: a small server of one folder of runs, which serves numbers and never files.

Loopback by default; elsewhere only with a token. Nothing in a request names a path.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from toosure.figures import PANELS, group_runs, stability
from toosure.figures.trajectory import values_of
from toosure.report.compare import comparison, correlations
from toosure.report.follow import FollowedRun
from toosure.report.moments import frames
from toosure.report.page import POLICY, in_script, page
from toosure.report.provenance import certificates, provenance
from toosure.report.runs import SCRIPTS, body, refinement, report_of, summary, title_of
from toosure.runs import find_runs

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")
MOST_ROWS = 20_000  # of a run in one answer; the rest comes with the next
FILES = (
    "metrics.jsonl",
    "config.json",
    "environment.json",
    "status.json",
    "snapshots",
    "predictions.npz",
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{POLICY}; connect-src 'self'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Followed:
    """The runs of a folder as they grow; links that lead out of the folder are left alone."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.root = self.folder.resolve()
        if not self.root.is_dir():
            raise ValueError(f"{folder} is not a folder: name the folder that holds the runs")
        self.runs: dict[Path, FollowedRun] = {}
        self.lock = Lock()  # answers are made in threads

    def read(self) -> list[FollowedRun]:
        """Take in new runs and new rows; forget what is gone."""
        paths = [run.path for run in find_runs(self.root) if is_inside(run.path, self.root)]
        self.runs = {path: self.runs.get(path) or FollowedRun(path, self.root) for path in paths}
        for run in self.runs.values():
            run.read()
        return list(self.runs.values())


def is_inside(run: Path, root: Path) -> bool:
    """Whether a run and all its files lie in the folder, and none is a link to elsewhere."""
    return all(
        (run / name).resolve().is_relative_to(root) and not (run / name).is_symlink()
        for name in ("", *FILES)
    )


def make_app(folder: str | Path, token: str = "") -> "Starlette":
    """Return the ASGI application; with a token every request must carry it."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise ValueError("the live page needs starlette: pip install 'toosure[live]'") from error
    followed = Followed(folder)

    def guarded(answer: Callable[..., "Response"], **more: Any) -> Route:
        async def endpoint(request: "Request") -> "Response":
            return await guard(request, followed, answer, token)

        return Route(f"/{more.pop('path')}", endpoint, **more)

    return Starlette(
        routes=[
            guarded(answer_page, path=""),
            guarded(answer_body, path="body"),
            guarded(answer_sections, path="sections"),
            guarded(answer_report, path="report"),
            guarded(answer_rows, path="rows", methods=["POST"]),
        ]
    )


async def guard(
    request: "Request", followed: Followed, answer: Callable[..., "Response"], token: str
) -> "Response":
    """Answer only who may ask: the token's bearer, or this machine under its own name.

    The name in the Host header is checked against DNS rebinding, where a page of another site
    gives its name the address 127.0.0.1.
    """
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import PlainTextResponse

    given = request.query_params.get("token", "")
    if token and not secrets.compare_digest(given.encode(), token.encode()):
        return PlainTextResponse("a token is needed: use the printed address", 403, HEADERS)
    if not token and host_of(request.headers.get("host", "")) not in LOCAL:
        return PlainTextResponse("ask for 127.0.0.1 or localhost", 403, HEADERS)
    asked = await request.body() if request.method == "POST" else b""

    def locked() -> "Response":
        with followed.lock:
            return answer(followed, asked)

    return await run_in_threadpool(locked)


def host_of(header: str) -> str:
    """Return the name in a Host header, without the port.

    >>> host_of("localhost:8000"), host_of("[::1]:80"), host_of("evil.example")
    ('localhost', '[::1]', 'evil.example')
    """
    return header[: header.find("]") + 1] if header.startswith("[") else header.split(":")[0]


def answer_page(followed: Followed, _: bytes) -> "Response":
    """Answer with the page as it is now, which then asks for what is new."""
    from starlette.responses import HTMLResponse

    runs = followed.read()
    known = in_script(json.dumps(standing(runs) | {"cursors": cursors_of(runs)}))
    bar = (
        '<div id="bar"><span id="pulse"></span><span id="said" role="status">…</span>'
        '<a id="save" class="plain" download="report.html" href="report">save as report</a></div>'
    )
    inner = f'{bar}<div id="all">{written(runs, followed)}</div>'
    script = f'<script type="application/json" id="cursors">{known}</script>'
    title = title_of(runs, followed.folder.name) if runs else "toosure live"
    policy = f"{POLICY}; connect-src 'self'"
    html = page(title, inner + script, more=(*SCRIPTS, "live.js"), policy=policy)
    return HTMLResponse(html, headers=HEADERS)


def written(runs: Sequence[FollowedRun], followed: Followed) -> str:
    """Return the inside of the page, or that it waits."""
    if runs:
        return body(runs, str(followed.folder))
    return (
        f'<header><p class="source">toosure · {escape(str(followed.folder))}</p>'
        "<h1>Waiting for the first run</h1></header>"
    )


def answer_body(followed: Followed, _: bytes) -> "Response":
    """Answer with all sections anew, for when runs came or went."""
    runs = followed.read()
    found = {"html": written(runs, followed), "cursors": cursors_of(runs)}
    return as_json(found | standing(runs))


def answer_sections(followed: Followed, _: bytes) -> "Response":
    """Answer with the sections of words and numbers, and the snapshots of the slider."""
    groups = group_runs(followed.read())
    if not groups:
        return as_json({"html": {}, "frames": []})
    moving = frames(groups)  # read first: what is damaged is among the warnings
    html = {
        "summary": summary(groups, str(followed.folder)),
        "comparison": comparison(groups),
        "correlations": correlations(groups),
        "refinement": refinement(groups),
        "certificate": certificates(groups),
        "provenance": provenance(groups),
    }
    return as_json({"html": html, "frames": moving})


def answer_report(followed: Followed, _: bytes) -> "Response":
    """Answer with the finished page, to be saved."""
    from starlette.responses import HTMLResponse, PlainTextResponse

    runs = followed.read()
    if not runs:
        return PlainTextResponse("there are no runs yet", 404, HEADERS)
    named = HEADERS | {"Content-Disposition": 'attachment; filename="report.html"'}
    return HTMLResponse(report_of(runs, str(followed.folder)), headers=named)


def answer_rows(followed: Followed, asked: bytes) -> "Response":
    """Answer with the rows that came after the cursors of the asker, in the units of the panels."""
    from starlette.responses import PlainTextResponse

    try:
        cursors = json.loads(asked)["cursors"]
        known = {str(k): (int(v[0]), int(v[1])) for k, v in cursors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return PlainTextResponse('send {"cursors": {"run": [inode, rows]}}', 400, HEADERS)
    runs = followed.read()
    found = {run.id: news(run, known[run.id][1]) for run in runs if is_behind(run, known)}
    return as_json({"runs": found} | standing(runs))


def is_behind(run: FollowedRun, known: dict[str, tuple[int, int]]) -> bool:
    return run.id in known and 0 <= known[run.id][1] < run.count


def news(run: FollowedRun, start: int) -> dict[str, Any]:
    """Return the rows of a run from `start` on: a column a line on the page."""
    end = min(run.count, start + MOST_ROWS)
    lines = {
        f"{split}/{key}": values
        for split in ("train", "val")
        for key in PANELS
        if (values := values_of(run, split, key)) is not None
    }
    edge = stability(run)
    lines |= {"stability": edge} if edge is not None else {}
    lines["step"] = run.columns["step"]
    columns = {key: rounded(values[start:end]) for key, values in lines.items()}
    return {"cursor": [run.inode, end], "columns": columns}


def rounded(values: np.ndarray) -> list[float | None]:
    """Return numbers that JSON can carry, to six digits; null where there is none."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.tolist()]


def cursors_of(runs: Sequence[FollowedRun]) -> dict[str, tuple[int, int]]:
    return {run.id: (run.inode, run.count) for run in runs}


def standing(runs: Sequence[FollowedRun]) -> dict[str, Any]:
    """Return how things stand: which files there are, how each run stands, how many go on."""
    files = [
        (run.id, run.inode, run.generation, sorted(run.columns), has_predictions(run))
        for run in runs
    ]
    statuses = [(run.id, run.status, run.count, len(run.snapshots)) for run in runs]
    return {
        "structure": digest(files),
        "stamp": digest(statuses),
        "running": sum(status == "running" for _, status, *_ in statuses),
        "total": len(runs),
    }


def has_predictions(run: FollowedRun) -> bool:
    return (run.path / "predictions.npz").is_file()


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def as_json(value: Any) -> "Response":
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
