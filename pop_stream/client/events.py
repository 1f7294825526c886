"""Server-sent events, as they come over a connection."""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event.

    Attributes:
        id: Of the newest event that had one, this one or an earlier; empty before.
        data: Its lines, joined by line breaks.
    """

    id: str
    data: str


async def read_events(lines: AsyncIterable[bytes]) -> AsyncIterator[ServerEvent]:
    """The events of a stream; comments, and an event that is cut off, are left out.

    Args:
        lines: Of the stream, each with its end.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, 9.2.6.
    """
    last_id, data = "", list[str]()
    async for raw in lines:
        line = raw.decode().rstrip("\r\n")
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
        elif not line and data:
            yield ServerEvent(last_id, "\n".join(data))
            data.clear()
