"""Around every request: its id, its answer if it fails, and its place in the metrics."""

import time
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from pop_stream.api.http import problems
from pop_stream.api.http.correlation import HEADER, correlation_id, bind_correlation
from pop_stream.api.http.metrics import Metrics
from pop_stream.core.errors import PopStreamError

_NO_SNIFF: Final = "X-Content-Type-Options"


def around_requests(metrics: Metrics) -> Middleware:
    """The application's one middleware."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        bind_correlation(request)
        response = await _answer(request, handler)
        metrics.answered(request, response, time.perf_counter() - started)
        return response

    return middleware


async def add_correlation_id(request: web.Request, response: web.StreamResponse) -> None:
    """Put the request's id on every answer, streams included, before its headers go out."""
    response.headers[HEADER] = correlation_id(request)
    response.headers[_NO_SNIFF] = "nosniff"


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except PopStreamError as error:
        return problems.from_error(request, error)
    except web.HTTPException as error:
        return problems.from_http(request, error)
    except Exception as error:
        if request.writer.output_size:
            raise  # an answer has begun: all that is left is to cut the connection
        return problems.from_fault(request, error)
