"""Who pulls: pullers by insight, with their last signs of life."""

from http import HTTPStatus
from typing import Annotated, Final

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.parameters import read_query
from pop_stream.api_models.pulls import PullerList, PullerView
from pop_stream.model.ids import ID_LENGTH, INSIGHT_ID_LENGTH, TOPIC_SAFE_PATTERN
from pop_stream.ports.pullers import PullerCursor, PullerReader, SeenPuller

MAX_PAGE_SIZE: Final = 500
"""Most pullers of one page."""

MAX_CURSOR: Final = INSIGHT_ID_LENGTH + 1 + ID_LENGTH
"""Characters of a cursor: an insight, a stroke, a puller."""


class _Listing(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    insight_id: (
        Annotated[
            str,
            StringConstraints(pattern=TOPIC_SAFE_PATTERN, max_length=INSIGHT_ID_LENGTH),
        ]
        | None
    ) = None
    after: Annotated[str, StringConstraints(max_length=MAX_CURSOR)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = 100


class PullerEndpoints:
    """The handler of pullers."""

    def __init__(self, pullers: PullerReader) -> None:
        self._pullers = pullers

    async def get_list(self, request: web.Request) -> web.Response:
        """A page of pullers, by insight and id."""
        wanted = read_query(request, _Listing)
        insight_id, _, puller_id = (wanted.after or "").partition("/")
        found = await with_timeout(
            self._pullers.page(
                insight_id=wanted.insight_id,
                after=PullerCursor(insight_id, puller_id) if wanted.after else None,
                limit=wanted.limit + 1,
            )
        )
        page = found[: wanted.limit]
        listed = PullerList(
            pullers=[_view(one) for one in page],
            next=_cursor(page[-1]) if len(found) > len(page) else None,
        )
        return json_response(listed, status=HTTPStatus.OK)


def _cursor(seen: SeenPuller) -> str:
    return f"{seen.insight_id}/{seen.puller_id}"


def _view(seen: SeenPuller) -> PullerView:
    return PullerView(
        insight_id=seen.insight_id,
        puller_id=seen.puller_id,
        first_seen_at=seen.first_seen_at,
        last_sign_at=seen.last_sign_at,
        last_claim_at=seen.last_claim_at,
        idle=seen.idle,
        last_agenda_id=seen.last_agenda_id,
    )
