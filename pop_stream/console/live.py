"""A page's main part, sent again whenever it has changed, as server-sent events.

The browser asks for it only while the page is visible. Whatever is sent is the main part as a
whole, made by the page's own code: what is live and what is loaded cannot differ.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from aiohttp import web

from pop_stream.client import ApiUnauthenticatedError
from pop_stream.model.errors import PopStreamError

EVERY_S: Final = 2.0
"""Between two looks at whether a page has changed."""

MAX_STREAMS: Final = 500
"""Pages that are followed at a time in one process; others are not live until one is left."""

_RETRY_MS: Final = 3_000
_IDLE: Final = 8
"""Looks without a change after which the browser is shown that the stream still stands."""


class Streams:
    """The pages that are followed."""

    def __init__(self) -> None:
        self._open: set[asyncio.Event] = set()

    def close(self) -> None:
        """End all streams; browsers ask again."""
        for closing in self._open:
            closing.set()

    async def serve(
        self,
        request: web.Request,
        main: Callable[[], Awaitable[str]],
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        """Send what `main` returns, now and whenever it is something else."""
        if len(self._open) >= MAX_STREAMS:
            return web.Response(status=503, headers={**headers, "Retry-After": "30"})
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"retry: {_RETRY_MS}\n\n".encode())
        closing = asyncio.Event()
        self._open.add(closing)
        try:
            with suppress(ConnectionResetError):
                await self._send_changes(response, main, closing)
        finally:
            self._open.discard(closing)
        return response

    async def _send_changes(
        self,
        response: web.StreamResponse,
        main: Callable[[], Awaitable[str]],
        closing: asyncio.Event,
    ) -> None:
        before, idle = "", 0
        while not closing.is_set():
            try:
                text = await main()
            except ApiUnauthenticatedError:
                await response.write(_event("ended", ""))
                return
            except PopStreamError as error:
                await response.write(_event("trouble", str(error)))
            else:
                idle = 0 if text != before else idle + 1
                if text != before:
                    await response.write(_event("main", text))
                elif idle % _IDLE == 0:
                    await response.write(b": still here\n\n")
                before = text
            with suppress(TimeoutError):
                await asyncio.wait_for(closing.wait(), EVERY_S)


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()
