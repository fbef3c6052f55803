"""HTTP server of the page, bound to 127.0.0.1 and protected by a token in the address."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from ..errors import install

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as missing:
    raise ImportError(f"topsign.explore needs starlette and uvicorn, but {missing}; {install('explore')}") from None

from .._checks import check_count
from ..index import Index
from . import entries, sizes

HOST = "127.0.0.1"
MAX_UPLOAD = 2**26  # bytes of an uploaded vector


class OnlyHere:
    """Middleware that rejects requests from other hosts (DNS rebinding) and other origins."""

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self.app = app
        self.hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            origin = request.headers.get("origin")
            allowed = request.headers.get("host") in self.hosts and (
                origin is None or origin.removeprefix("http://") in self.hosts
            )
            if not allowed or request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                await PlainTextResponse("only the page itself may send requests", status_code=403)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def make_app(index: Index | None, *, token: str, port: int) -> Starlette:
    """Return the application; all routes are under ``/token/``."""

    async def page(request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
        policy = f"default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-{nonce}'; "
        policy += f"script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        headers = {
            "Content-Security-Policy": policy,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return HTMLResponse(text.replace("{{nonce}}", nonce), headers=headers)

    def describe(request: Request) -> Any:
        return sizes.describe(sizes.CodeSizes.parse(request.query_params))

    def plan(request: Request) -> Any:
        return sizes.make_plan(sizes.CodeSizes.parse(request.query_params))

    def summary(request: Request) -> Any:
        return {"index": None if index is None else entries.summary(index)}

    def listed(request: Request) -> Any:
        return entries.page_of_entries(_given(index), start=_number(request, "start", 0), count=10)

    def neighbors(request: Request) -> Any:
        wanted = request.query_params.get("id", "")
        return entries.neighbors_of_entry(_given(index), wanted, k=_number(request, "k", 10), recall=_recall(request))

    async def upload(request: Request) -> Response:
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_UPLOAD:
                return JSONResponse({"error": f"a vector of at most {MAX_UPLOAD:,} bytes"}, status_code=413)
        return await _answer(
            lambda: entries.neighbors_of_upload(
                _given(index), bytes(content), k=_number(request, "k", 10), recall=_recall(request)
            )
        )

    root = f"/{token}"
    routes = [
        Route(f"{root}/", page),
        *(
            Route(f"{root}/api/{name}", _in_thread(view))
            for name, view in {
                "describe": describe,
                "plan": plan,
                "summary": summary,
                "entries": listed,
                "neighbors": neighbors,
            }.items()
        ),
        Route(f"{root}/api/search", upload, methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(OnlyHere, port=port)])


def serve(
    index: Index | None = None,
    *,
    port: int = 0,
    open_browser: bool = True,
    announce: Callable[[str], object] = print,
) -> None:
    """Serve the page on 127.0.0.1 until interrupted.

    Parameters
    ----------
    index : Index, optional
        Index to browse and search.
    port : int
        Port; 0 chooses a free one.
    open_browser : bool
        Whether to open the page in the browser.
    announce : callable
        Called with the address, which contains a secret token.
    """
    check_count(port, "port", minimum=0, maximum=65535)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        chosen = listening.getsockname()[1]
        token = secrets.token_urlsafe(16)
        address = f"http://{HOST}:{chosen}/{token}/"
        announce(address)
        if open_browser:
            webbrowser.open(address)
        app = make_app(index, token=token, port=chosen)
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[listening])


def _given(index: Index | None) -> Index:
    if index is None:
        raise ValueError("no index was opened; start with: topsign explore index.topsign")
    return index


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isdecimal() and len(text) <= 18):
        raise ValueError(f"{name} must be a whole number below 1e18, got {text[:40]!r}")
    return int(text)


def _recall(request: Request) -> float | None:
    text = request.query_params.get("recall", "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"recall must be a number, got {text[:40]!r}") from None


def _in_thread(view: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await _answer(lambda: view(request))

    return endpoint


async def _answer(work: Callable[[], Any]) -> Response:
    """Return the result of ``work`` as JSON, or its error message with status 400."""
    try:
        return JSONResponse(await run_in_threadpool(work))
    except (ValueError, TypeError, OverflowError) as error:
        return JSONResponse({"error": str(error)}, status_code=400)
