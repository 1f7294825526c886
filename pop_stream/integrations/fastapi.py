"""The client as a dependency of FastAPI and Starlette, and an agenda's progress as a stream.

    app = FastAPI(lifespan=pop_stream_lifespan())
    add_error_handler(app)

    @app.post("/reports", status_code=202)
    async def submit(client: PopStreamClient) -> dict[str, str]: ...

The application has one client, which is opened when it starts and closed when it ends. In
Starlette, which has no `Depends`, call `client_of(request)`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any, Final, cast

import msgspec
from fastapi import Depends
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from pop_stream.api_models.agendas import AgendaProgress
from pop_stream.client import (
    ApiError,
    ApiForbiddenError,
    ApiRateLimitedError,
    ApiRefusedError,
    ApiUnauthenticatedError,
    ApiUnavailableError,
    Client,
    Trace,
    tracing,
)
from pop_stream.settings import Settings

_STATE: Final = "pop_stream_client"
_PROBLEM: Final = "application/problem+json"

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[dict[str, Any]]]


def pop_stream_lifespan(
    url: str | None = None,
    *,
    token: str | None = None,
    **options: Any,  # noqa: ANN401  # those of `Client`
) -> Lifespan:
    """The lifespan of an application that has a client.

    A lifespan of your own enters it with the application, and yields its state with yours.

    Args:
        url: Where the API listens; `POP_API_URL` if not given.
        token: Key or token to show it; `POP_API_TOKEN` if not given.
        options: What `Client` takes besides, such as `retry`.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        settings = Settings()
        known = settings.api_token.get_secret_value() if settings.api_token else None
        async with Client(url or settings.api_url, token=token or known, **options) as client:
            yield {_STATE: client}

    return lifespan


def client_of(connection: HTTPConnection) -> Client:
    """The application's client, for whoever has a request or a web socket of it.

    Raises:
        RuntimeError: If the application has none.
    """
    client: Client | None = getattr(connection.state, _STATE, None)
    if client is None:
        msg = (
            "the application has no client of pop_stream: give it the lifespan "
            "pop_stream_lifespan(), or yield the state of that one from your own"
        )
        raise RuntimeError(msg)
    return client


async def pop_stream_client(connection: HTTPConnection) -> AsyncIterator[Client]:
    """The application's client, for `Depends`.

    What is submitted while the request is served carries its trace context and correlation id.

    Raises:
        RuntimeError: If the application has none.
    """
    client = client_of(connection)
    with tracing(Trace.of(connection.headers)):
        yield client


PopStreamClient = Annotated[Client, Depends(pop_stream_client)]
"""The type of an endpoint's argument that is the client."""


async def progress_response(client: Client, agenda_id: str) -> Response:
    """An agenda's progress as server-sent events: now, after every change, and its end.

    Each event's data is an `AgendaProgress` as JSON. The first is awaited here.

    Raises:
        ApiNotFoundError: If there is no such agenda.
        ApiError: If there is no answer.
    """
    followed = cast("AsyncGenerator[AgendaProgress, None]", client.follow(agenda_id))
    first = await anext(followed)
    return StreamingResponse(
        _events(first, followed),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


async def _events(
    first: AgendaProgress, followed: "AsyncGenerator[AgendaProgress, None]"
) -> AsyncIterator[bytes]:
    async with aclosing(followed):
        yield _event(first)
        async for progress in followed:
            yield _event(progress)


def _event(progress: AgendaProgress) -> bytes:
    return b"data: " + msgspec.json.encode(progress) + b"\n\n"


def add_error_handler(app: Starlette) -> None:
    """Let errors of the client answer requests, as `answer_error` says."""
    app.add_exception_handler(ApiError, answer_error)


async def answer_error(_: Request, error: Exception) -> Response:
    """The answer to a request on which the client raised.

    What a caller can mend, 404, 409 or 422 and the like, is passed on as the API's problem
    document; 429 and 503 with `Retry-After`. That the application's own token does not hold is
    not the caller's matter, nor is a fault of the API: 502.
    """
    if not isinstance(error, ApiError):
        raise error
    headers, status = {}, error.status
    if isinstance(error, ApiRateLimitedError | ApiUnavailableError):
        headers["Retry-After"] = f"{max(error.retry_after_s, 1):.0f}"
        status = status or HTTPStatus.SERVICE_UNAVAILABLE
    elif not isinstance(error, ApiRefusedError) or isinstance(
        error, ApiUnauthenticatedError | ApiForbiddenError
    ):
        status = HTTPStatus.BAD_GATEWAY
    if status == error.status and error.problem is not None:
        content = msgspec.to_builtins(error.problem)
    else:
        content = {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": int(status),
            "detail": "the scheduler behind this service cannot be used now",
            "code": error.code,
        }
    return JSONResponse(content, status, headers, media_type=_PROBLEM)
