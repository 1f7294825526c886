"""What a schedule's page has beside its definition: instants, occurrences and commands."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from multidict import MultiMapping
from pydantic import TypeAdapter, ValidationError

from pop_stream.api_models.commands import ListedAgenda
from pop_stream.api_models.schedules import NextInstant, ScheduleProgress
from pop_stream.client import ApiError, Selection
from pop_stream.console.viewing import PageView
from pop_stream.model.errors import ForbiddenError, Issue, NotFoundError, SubmissionError
from pop_stream.model.identity import Role
from pop_stream.model.json_types import InstantField
from pop_stream.model.schedule import Schedule

NEXT: Final = 10
"""Instants to come that are shown."""

LAST: Final = 10
"""Agendas of its link that are shown."""

_COMMAND: Final = "command"
_INSTANT: Final = TypeAdapter(InstantField)


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """How far a schedule is, and what comes.

    Attributes:
        progress: None while the API cannot say.
        link_id: Of its agendas; empty if it differs from one to the next.
    """

    progress: ScheduleProgress | None
    coming: Sequence[NextInstant]
    link_id: str
    agendas: Sequence[ListedAgenda]

    @property
    def is_paused(self) -> bool:
        """Whether nothing is submitted until it is resumed."""
        return self.progress is not None and self.progress.status.startswith("paused")


async def schedule_view(view: PageView, schedule: Schedule) -> ScheduleView:
    """What is known of a schedule beside its definition.

    Raises:
        NotFoundError: If it was deleted meanwhile.
    """
    link_id = schedule.submission.get("link_id", schedule.name)
    link_id = link_id if isinstance(link_id, str) and "@<" not in link_id else ""
    (progress, coming), agendas = await asyncio.gather(
        _progress(view, schedule.id, NEXT), _agendas(view, link_id)
    )
    return ScheduleView(progress, coming, link_id, agendas)


async def schedule_states(
    view: PageView, schedule_ids: Sequence[str]
) -> Mapping[str, tuple[str, datetime | None]]:
    """Of each, its status in a word and when it fires next; those without an answer left out.

    Asks for all of them at once: not for more than one page of a list.
    """
    found = await asyncio.gather(*(_state(view, one) for one in schedule_ids))
    return dict(zip(schedule_ids, found, strict=True))


async def _state(view: PageView, schedule_id: str) -> tuple[str, datetime | None]:
    try:
        progress, coming = await _progress(view, schedule_id, 1)
    except NotFoundError:
        return "deleted", None
    return (
        progress.status if progress else "",
        coming[0].nominal if coming else None,
    )


async def _progress(
    view: PageView, schedule_id: str, most: int
) -> tuple[ScheduleProgress | None, Sequence[NextInstant]]:
    calls = view.client.schedules
    try:
        progress, coming = await asyncio.gather(
            calls.progress(schedule_id), calls.next(schedule_id, n=most)
        )
    except ApiError:
        return None, ()
    return progress, coming.items


async def _agendas(view: PageView, link_id: str) -> Sequence[ListedAgenda]:
    if not link_id:
        return ()
    try:
        return (await view.client.page(Selection(link_id=(link_id,)), limit=LAST)).agendas
    except (ApiError, ValidationError):
        return ()  # the page's address of these says what is wrong


async def command_schedule(view: PageView, form: MultiMapping[str]) -> str:
    """Pause, resume, trigger or backfill a schedule.

    Raises:
        ForbiddenError: If the viewer may not operate.
        NotFoundError: If there is no such schedule that it may change, or no such command.
        SubmissionError: If a backfill's instants are none.
    """
    if not view.may(Role.OPERATE):
        msg = "commands need the role operate; ask an operator for a key that has it"
        raise ForbiddenError(msg)
    schedule_id, action = view.parts["object_id"], view.parts["action"]
    calls, count = view.client.schedules, ""
    match action:
        case "pause":
            await calls.patch(schedule_id, {"paused": True})
        case "resume":
            await _resume(view, schedule_id)
        case "trigger":
            await calls.trigger(schedule_id)
        case "backfill":
            first, last = _instant(form, "first"), _instant(form, "last")
            sent = await calls.backfill(schedule_id, first, last)
            count = f"&count={sent.occurrences}"
        case _:
            raise NotFoundError(_COMMAND, action[:50])
    return f"/definitions/schedules/{quote(schedule_id, safe='')}?did=schedule-{action}{count}"


async def _resume(view: PageView, schedule_id: str) -> None:
    """End both pauses: the one that the definition says, and the one that failures led to."""
    calls = view.client.schedules
    stored = await calls.get(schedule_id)
    if stored.definition.paused:
        await calls.patch(schedule_id, {"paused": False}, if_match=stored.version)
    if (await calls.progress(schedule_id)).status == "paused_after_failures":
        await calls.resume(schedule_id)


def _instant(form: MultiMapping[str], name: str) -> datetime:
    text = form.get(name, "").strip()
    try:
        return _INSTANT.validate_python(text)
    except (ValidationError, ValueError):
        message = "must be an instant with an offset, such as 2026-01-31T08:00:00Z"
        raise SubmissionError([Issue(name, text[:200], message)]) from None
