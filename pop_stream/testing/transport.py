"""The client of a scheduler in memory: requests are answered in place, as the API answers."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Final, Protocol, cast
from urllib.parse import unquote

import msgspec
from aiohttp.test_utils import make_mocked_request

from pop_stream.api.agendas.views import agenda_view, links_of, operation_views, progress_view
from pop_stream.api.http import problems
from pop_stream.api.http.errors import NoneAcceptedError
from pop_stream.api_models.commands import CommandRequest, CommandResult, Reprioritisation
from pop_stream.api_models.submissions import (
    AcceptedAgenda,
    SubmissionResult,
    SubmissionResults,
)
from pop_stream.client.client import Client
from pop_stream.client.errors import ApiError, ApiFaultError, error_of
from pop_stream.client.transport import NO_RETRY, ApiResponse, Call, ServerEvent, Transport
from pop_stream.model.errors import Issue, NotFoundError, PopStreamError, SubmissionError
from pop_stream.model.events.lifecycle import Action, AgendaCommanded
from pop_stream.model.identity import ANYONE
from pop_stream.policy.ingress.admission import Submission
from pop_stream.policy.lifecycle.rerun import has_effect, must_reach_scheduler
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.clock import Clock

_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])

_MAX_LISTED: Final = 10_000


class AnsweringScheduler(Protocol):
    """What requests are answered from; an `InMemoryScheduler`."""

    @property
    def clock(self) -> Clock:
        """Virtual time."""
        ...

    def admit(self, raw: bytes) -> Submission:
        """What the API would make of a submission."""
        ...

    def accept(self, submissions: Sequence[Submission]) -> None:
        """Take agendas in."""
        ...

    def command(self, event: AgendaCommanded) -> None:
        """Carry out a command."""
        ...

    def summary(self, agenda_id: str) -> Summary | None:
        """All that is known of an agenda."""
        ...


class InMemoryClient(Client):
    """The client of a scheduler in memory; it need not be entered.

    Args:
        scheduler: What it calls.
    """

    def __init__(self, scheduler: AnsweringScheduler) -> None:
        self._call_by(_InMemoryTransport(scheduler))


class _UnservedError(PopStreamError):
    """The scheduler in memory has no such operation."""

    code = "not_in_memory"


Handler = Callable[[bytes, str, str], tuple[HTTPStatus, object]]


class _InMemoryTransport(Transport):
    """Answers requests at once."""

    def __init__(self, scheduler: AnsweringScheduler) -> None:
        super().__init__(
            "memory://", token=None, timeout=timedelta(seconds=1), retry=NO_RETRY, headers=dict
        )
        self._scheduler = scheduler
        self._routes: Sequence[tuple[str, str, Handler]] = (
            ("POST", r"/v1/agendas", self._submit),
            ("GET", r"/v1/agendas/(?P<id>[^/]+)", self._agenda),
            ("GET", r"/v1/agendas/(?P<id>[^/]+)/progress", self._progress),
            ("GET", r"/v1/agendas/(?P<id>[^/]+)/operations/(?P<more>[^/]+)", self._operation),
            (
                "POST",
                r"/v1/agendas/(?P<id>[^/]+)/(?P<more>cancel|hold|release|reprioritise)",
                self._command,
            ),
        )

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def send(self, call: Call) -> ApiResponse:
        """The answer to a request."""
        try:
            status, content = self._answer(call)
        except PopStreamError as error:
            raise _as_api_error(call, error) from error
        return ApiResponse(status, msgspec.json.encode(content), {})

    async def follow(self, *parts: str) -> AsyncGenerator[ServerEvent, None]:
        """There are no streams: what happens, happens in `run_until_idle`."""
        call = Call(method="GET", path="/v1/" + "/".join(parts), is_repeatable=True)
        raise _as_api_error(call, _unserved(call))
        yield  # an iterator, as its callers expect

    def _answer(self, call: Call) -> tuple[HTTPStatus, object]:
        for method, pattern, handler in self._routes:
            fits = re.fullmatch(pattern, call.path)
            if fits and method == call.method and not call.query:
                named = {name: unquote(text) for name, text in fits.groupdict().items()}
                return handler(call.body or b"", named.get("id", ""), named.get("more", ""))
        raise _unserved(call)

    def _submit(self, body: bytes, _: str, __: str) -> tuple[HTTPStatus, object]:
        if body.lstrip().startswith(b"["):
            return HTTPStatus.ACCEPTED, self._submit_many(_LIST.decode(body))
        submission = self._scheduler.admit(body)
        self._scheduler.accept([submission])
        accepted = AcceptedAgenda(
            id=submission.visible_id,
            state="accepted",
            insight_id=submission.insight_id,
            links=links_of(submission.visible_id),
        )
        return HTTPStatus.ACCEPTED, accepted

    def _submit_many(self, bodies: Sequence[msgspec.Raw]) -> SubmissionResults:
        if len(bodies) > _MAX_LISTED:
            text = f"hold {_MAX_LISTED} agendas at most, not {len(bodies)}; send several lists"
            raise SubmissionError([Issue("agendas", str(len(bodies)), text)])
        sound: list[Submission] = []
        results: list[SubmissionResult] = []
        for index, body in enumerate(bodies):
            try:
                one = self._scheduler.admit(bytes(body))
            except SubmissionError as error:
                status = problems.status_of(type(error)).value
                issues = tuple(error.issues)
                results.append(SubmissionResult(index=index, status=status, issues=issues))
                continue
            sound.append(one)
            results.append(
                SubmissionResult(
                    index=index,
                    status=HTTPStatus.ACCEPTED.value,
                    id=one.visible_id,
                    insight_id=one.insight_id,
                )
            )
        refused = len(bodies) - len(sound)
        found = SubmissionResults(accepted=len(sound), refused=refused, results=results)
        if not sound:
            raise NoneAcceptedError(found)
        self._scheduler.accept(sound)
        return found

    def _agenda(self, _: bytes, agenda_id: str, __: str) -> tuple[HTTPStatus, object]:
        return HTTPStatus.OK, agenda_view(self._summary(agenda_id), seen_by=None)

    def _progress(self, _: bytes, agenda_id: str, __: str) -> tuple[HTTPStatus, object]:
        return HTTPStatus.OK, progress_view(self._summary(agenda_id), seen_by=None)

    def _operation(self, _: bytes, agenda_id: str, name: str) -> tuple[HTTPStatus, object]:
        for one in operation_views(self._summary(agenda_id)):
            if one.name == name:
                return HTTPStatus.OK, one
        kind = "operation"
        raise NotFoundError(kind, name)

    def _command(self, body: bytes, agenda_id: str, name: str) -> tuple[HTTPStatus, object]:
        action = cast("Action", name)
        shape = Reprioritisation if action == "reprioritise" else CommandRequest
        wanted = shape.model_validate_json(body or b"{}")
        summary = self._summary(agenda_id)
        if must_reach_scheduler(action, summary):
            moved = wanted if isinstance(wanted, Reprioritisation) else Reprioritisation()
            self._scheduler.command(
                AgendaCommanded(
                    agenda_id=agenda_id,
                    at=self._scheduler.clock.now(),
                    insight_id=summary.insight_id,
                    action=action,
                    priority=moved.priority,
                    rank=moved.rank,
                    by=ANYONE.name,
                    reason=wanted.reason,
                    attempt=summary.attempt,
                )
            )
        done = not has_effect(action, summary)
        result = CommandResult(
            id=agenda_id,
            action=action,
            state=summary.state,
            done=done,
            links=links_of(agenda_id),
        )
        return HTTPStatus.OK if done else HTTPStatus.ACCEPTED, result

    def _summary(self, agenda_id: str) -> Summary:
        summary = self._scheduler.summary(agenda_id)
        if summary is None:
            kind = "agenda"
            raise NotFoundError(kind, agenda_id)
        return summary


def _unserved(call: Call) -> _UnservedError:
    return _UnservedError(
        f"the scheduler in memory does not answer {call.method} {call.path}; "
        "test this with `pop-stream dev`"
    )


def _as_api_error(call: Call, error: PopStreamError) -> ApiError:
    """The error that the real client raises for the API's answer to this one."""
    if isinstance(error, _UnservedError):
        return ApiFaultError(str(error), status=HTTPStatus.NOT_IMPLEMENTED)
    answer = problems.from_error(make_mocked_request(call.method, call.path), error)
    body = answer.body
    content = body if isinstance(body, bytes) else b""
    return error_of(answer.status, "", content, answer.headers.get("Retry-After"))
