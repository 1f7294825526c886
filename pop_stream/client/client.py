"""The client: every operation of the API, by name."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from pop_stream.client.agendas import AgendaCalls
from pop_stream.client.commands import CommandCalls
from pop_stream.client.definitions import DefinitionCalls
from pop_stream.client.insights import InsightCalls
from pop_stream.client.keys import AuditCalls, KeyCalls
from pop_stream.client.retry import RETRY, Retry
from pop_stream.client.service import ServiceCalls
from pop_stream.client.templates import TemplateCalls
from pop_stream.client.transport import Transport
from pop_stream.client.work import PullCalls
from pop_stream.core.definitions.definitions import Customer, ResourcePool

TIMEOUT: Final = timedelta(seconds=30)


class Client(AgendaCalls, CommandCalls, PullCalls, ServiceCalls):
    """One API, and one caller of it; enter it before use, and share it between tasks.

    What is sent again, and when, `Retry` says. An async iterator that is left early holds its
    connection until it is closed: `contextlib.aclosing` does that at once.

    Args:
        url: Where the API listens, such as `http://127.0.0.1:8080`.
        token: An API key, or a token of the API's issuer; None shows none.
        timeout: For each answer, and besides for as long as a pull waits.
        retry: When a request is sent again.
        headers: Asked before every request for headers to add, such as those that a tracing
            library makes; `tracing` passes on what came in.

    Attributes:
        customers: Definitions of customers.
        pools: Definitions of resource pools.
        insights: Definitions of insights, and their queues.
        templates: Definitions of agenda templates, and their runs.
        keys: API keys.
        audit: Who changed what.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: timedelta = TIMEOUT,
        retry: Retry = RETRY,
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        transport = Transport(url, token=token, timeout=timeout, retry=retry, headers=headers)
        super().__init__(transport)
        self.customers = DefinitionCalls(transport, "customers", Customer)
        self.pools = DefinitionCalls(transport, "pools", ResourcePool)
        self.insights = InsightCalls(transport)
        self.templates = TemplateCalls(transport)
        self.keys = KeyCalls(transport)
        self.audit = AuditCalls(transport)

    @property
    def url(self) -> str:
        """Where the API listens."""
        return self._transport.url

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.close()
