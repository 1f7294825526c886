"""Whether the process lives, and whether what it depends on does."""

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final, Literal

import structlog
from aiohttp import web

from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.errors import NotReadyError
from pop_stream.api_models.base import Health, Readiness
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.summaries import SummaryReader

_PROBE_TIMEOUT_S: Final = 2.0

_log = structlog.get_logger()


class HealthEndpoints:
    """The handlers of the probes."""

    def __init__(self, publisher: Publisher, summaries: SummaryReader, *, topic: str) -> None:
        self._publisher = publisher
        self._summaries = summaries
        self._topic = topic

    async def get_alive(self, _: web.Request) -> web.Response:
        """200 while the process answers, whatever else is away."""
        return json_response(Health(status="ok"), status=HTTPStatus.OK)

    async def get_ready(self, _: web.Request) -> web.Response:
        """200 while Kafka and Postgres answer; a 503 names which does not."""
        kafka, postgres = await asyncio.gather(
            _probe("kafka", self._ask_kafka()),
            _probe("postgres", self._summaries.ping()),
        )
        parts = {"kafka": kafka, "postgres": postgres}
        if "away" in parts.values():
            raise NotReadyError(parts)
        return json_response(Readiness(status="ready", parts=parts), status=HTTPStatus.OK)

    async def _ask_kafka(self) -> None:
        await self._publisher.ping()
        await self._publisher.partitions(self._topic)


async def _probe(part: str, question: Awaitable[object]) -> Literal["ok", "away"]:
    try:
        await with_timeout(question, within_s=_PROBE_TIMEOUT_S)
    except UnavailableError as error:
        _log.warning("dependency.unavailable", part=part, reason=str(error))
        return "away"
    return "ok"
