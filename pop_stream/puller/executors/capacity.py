"""Tells the scheduler how much of an insight's cap an executor holds now.

The cap is the insight's `max_in_flight`. While the executor holds fewer runs, because nodes
are away, or none because it is away itself, the insight's health is reported as that part of
the cap, so that no more is emitted than can run, and the order is decided late.
"""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final, NoReturn
from urllib.parse import quote

import structlog

from pop_stream.puller.execution.api_session import ApiSession, ApiUnusableError
from pop_stream.puller.executors.port import Executor, ExecutorUnavailableError
from pop_stream.puller.handlers.errors import OperationError
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.settings import Settings

_OUTLIVES: Final = 4
"""A report is in force for so many intervals: one puller that stops leaves nothing behind."""

_REMEDIES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: ": set POP_API_TOKEN to a key with the role `operate`",
    HTTPStatus.FORBIDDEN: ": give the key in POP_API_TOKEN the role `operate`",
    HTTPStatus.NOT_FOUND: ": define the insight",
}

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
        self._path = f"/v1/insights/{quote(insight_id, safe='')}/health"
        self._cap = max_in_flight
        self._every_s = every.total_seconds()
        self._api = ApiSession(settings, _REMEDIES)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

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
        try:
            await self._api.request("PUT", self._path, body=json.dumps(body).encode())
        except ApiUnusableError as error:
            _log.warning("executor.capacity_unreported", path=self._path, reason=str(error))
        return part


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
