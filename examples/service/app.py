"""Serve a topsign index over HTTP, with a token and limits.

    TOPSIGN_INDEX=docs.topsign TOPSIGN_TOKEN=secret uvicorn app:app --host 127.0.0.1 --port 8000

At most SEARCHES searches run at the same time, each on one thread, so one client cannot take all cores.
"""

import hmac
import json
import os

import anyio
import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

import topsign as ts

MAX_BYTES, MAX_QUERIES, MAX_K, SEARCHES = 4 * 2**20, 64, 100, 2


def make_app(path, token):
    if not token:
        raise ValueError("the token is empty; choose a long random one")
    index = ts.open_index(path, readonly=True)
    limiter = anyio.CapacityLimiter(SEARCHES)

    def answer(queries, k):
        with ts.threads(1):  # as many searches run at once as there are cores
            return index.search(queries, k=k)

    async def search(request):
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "send the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        queries, k = parse(await read(request))
        try:
            found = await anyio.to_thread.run_sync(answer, queries, k, limiter=limiter)
        except ValueError as error:  # for example, queries of another length
            raise HTTPException(400, str(error)) from None
        return JSONResponse({"ids": found.ids.tolist(), "scores": found.scores.tolist()})

    async def health(request):
        return JSONResponse({"entries": len(index), "n_features": index.n_features})

    def explain(request, error):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    routes = [Route("/search", search, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, exception_handlers={HTTPException: explain})


async def read(request):
    """Read the body, and stop as soon as it is too long, whatever Content-Length says."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"the body is longer than {MAX_BYTES:,} bytes; send fewer queries")
    return bytes(body)


def parse(body):
    """Queries and k of a request, checked."""
    try:
        request = json.loads(body)
        queries, k = np.array(request["queries"], np.float32), request.get("k", 10)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise HTTPException(400, 'send JSON such as {"queries": [[0.1, 0.2]], "k": 10}') from None
    if queries.ndim != 2 or not 1 <= len(queries) <= MAX_QUERIES or not np.isfinite(queries).all():
        raise HTTPException(400, f"queries must be 1 to {MAX_QUERIES} rows of finite numbers, got {queries.shape}")
    if type(k) is not int or not 1 <= k <= MAX_K:
        raise HTTPException(400, f"k must be an integer from 1 to {MAX_K}, got {k!r}")
    return queries, k


if "TOPSIGN_INDEX" in os.environ:
    app = make_app(os.environ["TOPSIGN_INDEX"], os.environ["TOPSIGN_TOKEN"])
