"""Page of `topsign explore`: HTTP server bound to 127.0.0.1, with a token in the address, and contents of an index.

Detection performance comes from :mod:`topsign.explore.sizes`. Needs the extra ``explore``."""

from __future__ import annotations

import io
import json
import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import numpy as np

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

from .._arrays import Array
from .._checks import as_signals, check_count
from ..index import Index, nulls_of
from ..search.query_block import query_blocks
from ..significance import probabilities
from . import sizes

__all__ = ["make_app", "serve"]

HOST = "127.0.0.1"
MAX_UPLOAD = 2**26  # bytes of an uploaded vector
SAMPLED = 20_000  # entries sampled for the histogram of scores
N_BINS = 40


def index_summary(index: Index) -> dict[str, Any]:
    """Return a summary of the index."""
    return {
        "description": repr(index),
        "n_entries": len(index),
        "n_features": index.n_features,
        "bytes_per_entry": index.nbytes / max(1, len(index)),
        "has_regions": index.regions is not None,
    }


def page_of_entries(index: Index, *, start: int, count: int) -> dict[str, Any]:
    """Return consecutive entries with their metadata."""
    start, count = check_count(start, "start", minimum=0), check_count(count, "count", maximum=200)
    entries = index.get(index.ids[start : start + count])
    names = np.asarray(entries.ids).tolist()
    rows = [{"id": id, "metadata": note} for id, note in zip(names, entries.metadata, strict=True)]
    return {"start": start, "n_entries": len(index), "entries": rows}


def neighbors_of_entry(index: Index, id: str, *, k: int, recall: float | None = None) -> dict[str, Any]:
    """Return the neighbours of an entry, whose signal is reconstructed from its code."""
    wanted: Any = id if index.info["text_ids"] or not (id.isdecimal() and len(id) <= 18) else int(id)
    return nearest_entries(index, index.get([wanted]).codes.decode(), k=k, recall=recall)


def nearest_entries(index: Index, signal: Array, *, k: int, recall: float | None = None) -> dict[str, Any]:
    """Return the nearest entries of one signal, with p- and E-values, and a histogram of scores with the null law.

    ``recall`` searches only the regions that this recall requires.
    """
    signal = as_signals(signal, n_features=index.n_features, name="the vector")
    if len(signal) != 1:
        raise ValueError(f"expected one vector, got {len(signal)}")
    found = index.search(signal, k=check_count(k, "k", maximum=1000), recall=recall)
    kept = ~np.isnan(found.scores[0])  # fewer than k entries
    ids = found.ids[0][kept]
    notes = index.get(ids).metadata if len(ids) else []
    measures = (found.scores, found.distances, found.p_values, found.log10_p_values, found.e_values)
    columns = [[None if np.isnan(value) else value for value in column[0][kept].tolist()] for column in measures]
    names = ("id", "score", "distance", "p_value", "log10_p_value", "e_value", "metadata")
    rows = [dict(zip(names, row, strict=True)) for row in zip(np.asarray(ids).tolist(), *columns, notes, strict=True)]
    visited = None if recall is None else {"share": float(found.visited[0]), "exhaustive": str(found.exhaustive[0])}
    return {"neighbors": rows, "visited": visited, "histogram": _histogram(index, signal)}


def _histogram(index: Index, signal: Array) -> dict[str, Any]:
    """Return a histogram of the entries' scores, with the expected counts under the null distribution."""
    ids = index.ids
    if not len(ids):
        return {"edges": [], "counts": [], "expected": []}
    if len(ids) > SAMPLED:
        ids = ids[np.random.default_rng(0).choice(len(ids), SAMPLED, replace=False)]
    scores = index.search(signal, k=len(ids), among=ids).scores[0]
    counts, edges = np.histogram(scores, bins=N_BINS)
    ((_, scan),) = query_blocks(index.recipe, signal, scoring="asymmetric", nulls=nulls_of(index))
    expected: list[float] = []
    if index.metric == "correlation" and scan.null is not None:
        expected = (len(ids) * -np.diff(probabilities(scan.null.log10_p_values(edges)))).tolist()
    return {"edges": edges.tolist(), "counts": counts.tolist(), "expected": expected}


def _read_vector(content: bytes) -> Array:
    """Read an uploaded vector: an .npy file, a JSON list, or numbers between commas or spaces."""
    try:
        if content.startswith(b"\x93NUMPY"):
            vector: Array = np.load(io.BytesIO(content), allow_pickle=False)
            return vector
        text = content.decode()
        values = json.loads(text) if text.lstrip().startswith("[") else text.replace(",", " ").split()
        return np.asarray(values, np.float64)
    except (ValueError, TypeError, EOFError, MemoryError, OverflowError, RecursionError) as error:
        raise ValueError(f"the vector must be an .npy file, a JSON list or numbers between commas: {error}") from None


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

    async def upload(request: Request) -> Response:
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_UPLOAD:
                return JSONResponse({"error": f"a vector of at most {MAX_UPLOAD:,} bytes"}, status_code=413)
        return await _answer(
            lambda: nearest_entries(
                _given(index), _read_vector(bytes(content)), k=_number(request, "k", 10), recall=_recall(request)
            )
        )

    views: dict[str, Callable[[Request], Any]] = {
        "describe": lambda request: sizes.describe(sizes.CodeSizes.parse(request.query_params)),
        "plan": lambda request: sizes.make_plan(sizes.CodeSizes.parse(request.query_params)),
        "summary": lambda request: {"index": None if index is None else index_summary(index)},
        "entries": lambda request: page_of_entries(_given(index), start=_number(request, "start", 0), count=10),
        "neighbors": lambda request: neighbors_of_entry(
            _given(index), request.query_params.get("id", ""), k=_number(request, "k", 10), recall=_recall(request)
        ),
    }
    routes = [
        Route(f"/{token}/", page),
        *(Route(f"/{token}/api/{name}", _in_thread(view)) for name, view in views.items()),
        Route(f"/{token}/api/search", upload, methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(OnlyHere, port=port)])


def serve(
    index: Index | None = None, *, port: int = 0, open_browser: bool = True, announce: Callable[[str], object] = print
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
