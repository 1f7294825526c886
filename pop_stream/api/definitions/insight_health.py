"""`PUT /v1/insights/{insight_id}/health`: a value of an insight's health, put from outside.

It goes to the scheduler of the insight as an event, without Postgres, and is void after its
time to live: whoever reports it says it again before. The queue of the insight shows what is
in force.
"""

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Final

import structlog
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from pop_stream.api.http.answers import json_response
from pop_stream.api.http.body import BodyReader
from pop_stream.api_models.queues import HealthReportView
from pop_stream.kafka.lifecycle_reader import ready_record
from pop_stream.kafka.topics import Topics
from pop_stream.model.agenda import Id
from pop_stream.model.errors import NotFoundError
from pop_stream.model.events.base import HealthValue
from pop_stream.model.events.scheduling import InsightHealth
from pop_stream.model.ids import INSIGHT_ID_LENGTH, InsightId
from pop_stream.policy.backlog.health import OBSERVED
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher

MAX_TTL_S: Final = 86_400

_log = structlog.get_logger()


class HealthReport(BaseModel):
    """What is reported of an insight's health."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Id = Field(
        default="manual", description="A name of its own; the last value of each is in force."
    )
    coefficient: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        description="The cap on agendas in flight is multiplied by the worst of all; 0 "
        "emits nothing."
    )
    ttl_s: Annotated[float, Field(ge=1, le=MAX_TTL_S)] = Field(
        default=300.0, description="After so long it is void, unless it is reported again."
    )
    reason: Annotated[str, StringConstraints(max_length=200)] = Field(
        default="", description="Shown to whoever asks why an agenda waits."
    )

    @field_validator("source")
    @classmethod
    def _is_not_the_schedulers(cls, source: str) -> str:
        if source in OBSERVED:
            msg = f"{source!r} is what the scheduler itself sees; choose another name"
            raise ValueError(msg)
        return source


class InsightHealthEndpoints:
    """The handler of reports about the health of insights."""

    def __init__(
        self,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        body_reader: BodyReader,
        *,
        topics: Topics,
    ) -> None:
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._body_reader = body_reader
        self._topics = topics

    async def put(self, request: web.Request) -> web.Response:
        """Publish a value for the insight's scheduler, in place of the source's last one.

        Raises:
            NotFoundError: If there is no such insight.
            UnavailableError: If Kafka does not acknowledge in time.
        """
        insight_id = request.match_info["insight_id"]
        current = self._definitions.current
        if InsightId(insight_id) not in current.insights:
            kind = "insight"
            raise NotFoundError(kind, insight_id[:INSIGHT_ID_LENGTH])
        report = await self._body_reader.read_model(request, HealthReport)
        until = self._clock.now() + timedelta(seconds=report.ttl_s)
        value = HealthValue(report.coefficient, until.timestamp(), report.reason)
        event = InsightHealth(insight_id=insight_id, source=report.source, value=value)
        partitions = await self._publisher.partitions(self._topics.ready)
        await self._publisher.publish(
            [ready_record(self._topics, current, event, partitions=partitions)]
        )
        _log.info(
            "insight.health",
            insight_id=insight_id,
            source=report.source,
            coefficient=report.coefficient,
        )
        view = HealthReportView(
            insight_id=insight_id,
            source=report.source,
            coefficient=report.coefficient,
            until=until,
        )
        return json_response(view, status=HTTPStatus.ACCEPTED)
