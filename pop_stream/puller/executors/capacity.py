"""Tells the scheduler how much of an insight's cap an executor holds now.

The cap is the insight's `max_in_flight`. While the executor holds fewer runs, because nodes
are away, or none because it is away itself, the insight's health is reported as that part of
the cap, so that no more is emitted than can run, and the order is decided late.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog

from pop_stream.puller.executors.port import Executor, ExecutorUnavailableError
from pop_stream.puller.handlers.errors import OperationError
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.settings import Settings

if TYPE_CHECKING:
    import aiohttp

_REQUEST_S: Final = 10.0
_OUTLIVES: Final = 4
"""A report is in force for so many intervals: one puller that stops leaves nothing behind."""

_log = structlog.get_logger()


class CapacityReporter:
    """Reports the health of one insight; several pullers may report the same.

    Args:
        executor: What is asked how many runs it holds.
        insight_id: Whose health it is.
        max_in_flight: Of the insight's definition; at least 1.
        settings: Where the API is, and a token with the role `operate`.
        every: Between two reports, at least a second.
    """

    def __init__(
        self,
        executor: Executor[Any],
        insight_id: str,
        max_in_flight: int,
        settings: Settings,
        every: timedelta = timedelta(seconds=30),
    ) -> None:
        self._executor = executor
        self._url = f"{settings.api_url.rstrip('/')}/v1/insights/{insight_id}/health"
        self._cap = max_in_flight
        self._every_s = every.total_seconds()
        token = settings.api_token
        self._headers: Mapping[str, str] = (
            {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
        )
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def run(self) -> NoReturn:
        """Report until cancelled; what cannot be reported is logged, and said again later."""
        while True:
            await self.report()
            await asyncio.sleep(self._every_s)

    async def report(self) -> float | None:
        """Report once.

        Returns:
            The part of the cap that was reported; None if the executor cannot say.
        """
        try:
            capacity = await self._executor.capacity()
            reason = f"{self._executor.kind} holds {capacity} of {self._cap} runs"
        except (ExecutorUnavailableError, OperationError) as error:
            capacity, reason = 0, str(error)
        if capacity is None:
            return None
        part = min(1.0, capacity / self._cap)
        body = {
            "source": f"executor-{self._executor.kind}",
            "coefficient": part,
            "ttl_s": max(1.0, self._every_s * _OUTLIVES),
            "reason": reason[:200],
        }
        await self._put(body)
        return part

    async def _put(self, body: Mapping[str, object]) -> None:
        import aiohttp  # noqa: PLC0415  # a fifth of the start of a puller, which may not need it

        if self._session is None:
            within = aiohttp.ClientTimeout(total=_REQUEST_S)
            self._session = aiohttp.ClientSession(timeout=within, headers=self._headers)
        try:
            async with self._session.put(self._url, json=body) as response:
                said = f"{response.status} {await response.text()}"
                is_taken = response.status == HTTPStatus.ACCEPTED
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said, is_taken = type(error).__name__, False
        if not is_taken:
            _log.warning("executor.capacity_unreported", url=self._url, answer=said[:300])


def report_capacity(
    handlers: Handlers,
    executor: Executor[Any],
    insight_id: str,
    *,
    max_in_flight: int,
    settings: Settings | None = None,
) -> None:
    """Have the insight's cap follow what an executor holds, while a puller serves.

    Args:
        handlers: Of the puller.
        executor: What is asked.
        insight_id: Whose cap it is.
        max_in_flight: As the insight's definition has it.
        settings: Read from POP_ variables if not given.

    Raises:
        ValueError: If `max_in_flight` is below 1.
    """
    if max_in_flight < 1:
        msg = f"max_in_flight = {max_in_flight}: give the insight's own, at least 1"
        raise ValueError(msg)
    reporter = CapacityReporter(executor, insight_id, max_in_flight, settings or Settings())
    handlers.beside(reporter.run)
    handlers.on_stop(reporter.close)
