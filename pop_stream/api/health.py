"""Whether the process lives, and whether what it depends on does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, Literal

import structlog
from aiohttp import web

from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.errors import NotReadyError
from pop_stream.api_models.base import DoctorReport, Health, Readiness
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.clock import Clock
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


DOCTOR_TTL_S: Final = 10.0
"""However often it is asked, the installation is looked at once in so long."""

_DOCTOR_TIMEOUT_S: Final = 30.0


class DoctorEndpoints:
    """The handler of the doctor, whose look at everything costs seconds of several servers.

    Args:
        examine: Looks, and says what is wrong in words.
        clock: For the instant of the report.
    """

    def __init__(self, examine: Callable[[], Awaitable[Sequence[str]]], clock: Clock) -> None:
        self._examine = examine
        self._clock = clock
        self._looking: asyncio.Task[DoctorReport] | None = None
        self._began_s = 0.0

    async def get(self, _: web.Request) -> web.Response:
        """What is wrong; all who ask within `DOCTOR_TTL_S` get the same answer."""
        now = asyncio.get_running_loop().time
        looking = self._looking
        is_old = now() - self._began_s > DOCTOR_TTL_S
        if looking is None or (looking.done() and (is_old or looking.exception())):
            looking = self._looking = asyncio.create_task(self._look())
            self._began_s = now()
        report = await with_timeout(asyncio.shield(looking), within_s=_DOCTOR_TIMEOUT_S)
        return json_response(report, status=HTTPStatus.OK)

    async def _look(self) -> DoctorReport:
        now = asyncio.get_running_loop().time
        at, began_s = self._clock.now(), now()
        async with asyncio.timeout(_DOCTOR_TIMEOUT_S):
            findings = await self._examine()
        return DoctorReport(findings=[*findings], at=at, took_s=now() - began_s)


async def _probe(part: str, question: Awaitable[object]) -> Literal["ok", "away"]:
    try:
        await with_timeout(question, within_s=_PROBE_TIMEOUT_S)
    except UnavailableError as error:
        _log.warning("dependency.unavailable", part=part, reason=str(error))
        return "away"
    return "ok"
