"""A way to a server that a test can close, and open again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class TcpProxy:
    """Passes on bytes to a server while it is open.

    Attributes:
        dsn: Of the server, by way of the gate.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._is_open = True
        self._ways: set[asyncio.StreamWriter] = set()
        self.dsn = ""

    def close(self) -> None:
        """The server is away: what is open breaks, and nobody gets through."""
        self._is_open = False
        for way in self._ways:
            way.transport.abort()

    def open(self) -> None:
        self._is_open = True

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["TcpProxy"]:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        port, there = server.sockets[0].getsockname()[1], urlsplit(self._dsn).port
        self.dsn = self._dsn.replace(f":{there}/", f":{port}/")
        assert self.dsn != self._dsn
        try:
            yield self
        finally:
            self.close()
            server.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = urlsplit(self._dsn)
        if not self._is_open:
            writer.transport.abort()
            return
        from_there, to_there = await asyncio.open_connection(there.hostname, there.port)
        ends = {writer, to_there}
        self._ways |= ends
        await asyncio.gather(_pump(reader, to_there), _pump(from_there, writer))
        self._ways -= ends


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
    writer.close()
