"""Serve a topsign index over HTTP, with a token and limits.

    TOPSIGN_INDEX=docs.topsign TOPSIGN_TOKEN=secret uvicorn app:app --host 127.0.0.1 --port 8000

A request is {"queries": [[0.1, 0.2]], "k": 10, "where": "year >= 2020", "recall": 0.95}; only ``queries`` is needed.
If the index keeps originals, candidates are ranked by exact scores. At most SEARCHES searches run at the same time,
each on one thread, so one client cannot take all cores.
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
FIELDS = ("queries", "k", "where", "recall")


def make_app(path, token):
    if not token:
        raise ValueError("the token is empty; choose a long random one")
    index = ts.open_index(path, readonly=True)
    limiter = anyio.CapacityLimiter(SEARCHES)

    def answer(queries, k, where, recall):
        rescore = index.originals is not None and recall is None  # with recall, originals are used anyway
        with ts.threads(1):  # as many searches run at once as there are cores
            return index.search(queries, k=k, where=where, recall=recall, rescore=rescore)

    async def search(request):
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "send the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        asked = parse(await read(request))
        try:
            found = await anyio.to_thread.run_sync(lambda: answer(**asked), limiter=limiter)
        except (ValueError, TypeError) as error:  # for example, queries of another length or a filter that is none
            raise HTTPException(400, str(error)) from None
        filled = np.isfinite(found.scores)  # fewer than k entries may pass the filter
        rows = zip(found.ids, found.scores, filled, strict=True)
        return JSONResponse({"results": [{"ids": i[f].tolist(), "scores": s[f].tolist()} for i, s, f in rows]})

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


def distinct(pairs):
    """Members of a JSON object; one that is given twice is refused, because the first would be ignored."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError
    return members


def parse(body):
    """Fields of a request, checked; a field that is not known is refused, because a filter would be ignored."""
    try:
        request = json.loads(body, object_pairs_hook=distinct)
        queries = np.array(request["queries"], np.float32)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise HTTPException(400, 'send JSON such as {"queries": [[0.1, 0.2]], "k": 10}') from None
    if unknown := ", ".join(sorted(request.keys() - set(FIELDS))):
        raise HTTPException(422, f"unknown fields: {unknown}; there are {', '.join(FIELDS)}")
    if queries.ndim != 2 or not 1 <= len(queries) <= MAX_QUERIES or not np.isfinite(queries).all():
        raise HTTPException(400, f"queries must be 1 to {MAX_QUERIES} rows of finite numbers, got {queries.shape}")
    k, recall = request.get("k", 10), request.get("recall")
    if type(k) is not int or not 1 <= k <= MAX_K:
        raise HTTPException(400, f"k must be an integer from 1 to {MAX_K}, got {k!r:.20}")
    if recall is not None and (type(recall) is not float or not 0 < recall < 1):
        raise HTTPException(400, f"recall must be a number between 0 and 1, got {recall!r:.20}")
    return {"queries": queries, "k": k, "where": request.get("where"), "recall": recall}


if "TOPSIGN_INDEX" in os.environ:
    app = make_app(os.environ["TOPSIGN_INDEX"], os.environ["TOPSIGN_TOKEN"])
