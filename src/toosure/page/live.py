"""The live page: a small server for one folder of runs, which serves numbers, never files.

It listens on loopback by default, elsewhere only with a token. No request names a path. Clients are
not trusted: requests are limited in size, depth and time, and pages of other sites are refused.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from toosure.page.html import POLICY
from toosure.page.live_answers import Cursors, PageAnswers
from toosure.runs import RunFolder
from toosure.runs.json_text import parse_json
from toosure.runs.storage import as_url, local_folder

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")
MAX_BODY = 1 << 16  # bytes of a request
BODY_SECONDS = 10.0  # for a request to arrive
CHUNK = 1 << 16  # bytes that a slow reader may hold at once
QUESTION = 'send {"cursors": {"run": [inode, rows]}}'
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{POLICY}; connect-src 'self'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
HTML = "text/html; charset=utf-8"
JSON = "application/json"


class Refusal(Exception):
    """A refused request: the status code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class SharedAnswer:
    """Compute one answer at a time, and share it among requests that came before its start."""

    def __init__(self, make: Callable[[], bytes], lock: asyncio.Lock) -> None:
        self.make = make
        self.lock = lock
        self.begun = -1.0
        self.answer = b""

    async def get(self) -> bytes:
        """Return an answer whose computation starts after this call."""
        from starlette.concurrency import run_in_threadpool

        asked = time.monotonic()
        async with self.lock:
            if self.begun < asked:
                begun = time.monotonic()
                self.answer = await run_in_threadpool(self.make)
                self.begun = begun
            return self.answer


def make_app(folder: str | Path, token: str = "") -> "Starlette":
    """Return the ASGI application; with a token every request must carry it.

    Pages and rows have separate readers, so that rows do not wait for a page.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
    except ImportError as error:
        raise ValueError("the live page needs starlette: pip install 'toosure[live]'") from error
    pages = PageAnswers(folder)
    rows = PageAnswers(folder)
    page_lock = asyncio.Lock()
    row_lock = asyncio.Lock()

    def route(path: str, make: Callable[[], bytes], kind: str, **headers: str) -> "Route":
        shared = SharedAnswer(make, page_lock)

        async def endpoint(request: "Request") -> "Response":
            try:
                check_client(request, token)
            except Refusal as refusal:
                return refused(refusal)
            content = await shared.get()
            if not content:
                return refused(Refusal(404, "there are no runs yet"))
            return answer(content, kind, headers)

        return Route(path, endpoint, methods=["GET"])

    async def answer_rows(request: "Request") -> "Response":
        from starlette.concurrency import run_in_threadpool

        try:
            check_client(request, token)
            cursors = cursors_in(await read_body(request))
        except Refusal as refusal:
            return refused(refusal)
        async with row_lock:
            content = await run_in_threadpool(rows.rows, cursors)
        return answer(content, JSON)

    saved = {"Content-Disposition": 'attachment; filename="report.html"'}
    return Starlette(
        routes=[
            route("/", pages.page, HTML),
            route("/body", pages.body, JSON),
            route("/sections", pages.sections, JSON),
            route("/report", pages.report, HTML, **saved),
            Route("/rows", answer_rows, methods=["POST"]),
        ],
        exception_handlers={HTTPException: no_such_page},
    )


async def no_such_page(_: "Request", error: Exception) -> "Response":
    return refused(Refusal(getattr(error, "status_code", 500), "there is no such page"))


def check_client(request: "Request", token: str) -> None:
    """Refuse a request without the token, or, if there is none, from other hosts and sites.

    The Host header is checked because of DNS rebinding: another site may point its name at
    127.0.0.1.
    """
    sent = request.query_params.get("token", "")
    if token and not secrets.compare_digest(sent.encode(), token.encode()):
        raise Refusal(403, "a token is needed: use the printed address")
    if not token and host_of(request.headers.get("host", "")) not in LOCAL:
        raise Refusal(403, "ask for 127.0.0.1 or localhost")
    if is_cross_site(request):
        raise Refusal(403, "pages of other sites may not ask")


def is_cross_site(request: "Request") -> bool:
    """Whether a page of another site sent the request, according to the browser.

    Links to the page itself are allowed anywhere, because the linking site cannot read the answer.
    """
    headers = request.headers
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        return True
    is_link = (
        request.method == "GET"
        and request.url.path == "/"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_link


def host_of(header: str) -> str:
    """Return the name in a Host header, without the port.

    >>> host_of("localhost:8000"), host_of("[::1]:80"), host_of("evil.example")
    ('localhost', '[::1]', 'evil.example')
    """
    return header[: header.find("]") + 1] if header.startswith("[") else header.split(":")[0]


async def read_body(request: "Request") -> bytes:
    """Return the body of a request, within limits of size and time."""
    from starlette.requests import ClientDisconnect

    async def read() -> bytes:
        content = b""
        async for part in request.stream():
            content += part
            if len(content) > MAX_BODY:
                raise Refusal(413, f"at most {MAX_BODY:,} bytes")
        return content

    try:
        return await asyncio.wait_for(read(), BODY_SECONDS)
    except TimeoutError:
        raise Refusal(408, f"a request must arrive within {BODY_SECONDS:.0f} s") from None
    except ClientDisconnect:
        raise Refusal(400, "the asker is gone") from None


def cursors_in(question: bytes) -> Cursors:
    """Return the cursors in a body of JSON: the inode and the number of rows of each run."""
    try:
        cursors = parse_json(question, max_depth=4)["cursors"]
        pairs = [(name, inode, count) for name, (inode, count) in cursors.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refusal(400, QUESTION) from None
    if not all(type(inode) is int and type(count) is int for _, inode, count in pairs):
        raise Refusal(400, QUESTION)
    return {name: (inode, count) for name, inode, count in pairs}


def refused(refusal: Refusal) -> "Response":
    """Return the response of a refusal; it closes the connection."""
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(str(refusal), refusal.code, HEADERS | {"Connection": "close"})


def answer(content: bytes, kind: str, headers: dict[str, str] | None = None) -> "Response":
    """Return a response that is sent in parts, each after the client has read the previous one."""
    from starlette.responses import Response

    class InParts(Response):
        async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            for place in range(0, len(content), CHUNK):
                part = content[place : place + CHUNK]
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    length = {"Content-Length": str(len(content))}
    return InParts(headers=HEADERS | length | (headers or {}), media_type=kind)


def serve(
    folder: str | Path,
    host: str = "127.0.0.1",
    port: int = 8765,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the live page of a folder until Ctrl-C; `say` receives the address."""
    try:
        import uvicorn

        from toosure.page.connections import PatientProtocol
    except ImportError as error:
        raise ValueError("the live page needs uvicorn: pip install 'toosure[live]'") from error
    token = "" if host in LOCAL else secrets.token_urlsafe(24)
    app = make_app(folder, token)
    if sentence := waiting_message(folder):
        say(sentence)

    check_port(host, port)
    shown = f"[{host}]" if ":" in host else host
    say(f"live: http://{shown}:{port}/" + (f"?token={token}" if token else ""))
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="error",
        http=PatientProtocol,
        ws="none",
        lifespan="off",
    )


def waiting_message(folder: str | Path) -> str:
    """Return where runs are waited for; empty if there are some."""
    local = local_folder(folder)
    if RunFolder(local).find():
        return ""
    where = as_url(folder) or local.absolute()
    lack = "there are no runs in" if local.is_dir() else "there is no folder"
    return f"{lack} {where} yet: the page shows runs when they come; Ctrl-C ends the wait"


def check_port(host: str, port: int) -> None:
    """Raise if the port is in use, or the host is not this machine."""
    try:
        first = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        family, kind, protocol, _, address = first
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        raise ValueError(
            f"{host}:{port} cannot be listened on ({error.strerror}): give another --port or --host"
        ) from error
