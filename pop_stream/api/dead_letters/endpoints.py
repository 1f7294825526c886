"""The handlers of dead letters."""

import base64
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import structlog
from aiohttp import web
from pydantic import Field

from pop_stream.api.dead_letters.redrive import Redriven, Redriver, why_not
from pop_stream.api.http.access import author_of, object_of, principal_of
from pop_stream.api.http.answers import json_response, with_timeout
from pop_stream.api.http.body import BodyReader
from pop_stream.api.http.errors import InvalidError
from pop_stream.api.http.parameters import read_query
from pop_stream.api_models.dead_letters import (
    MAX_COMMANDED,
    MAX_PAGE_SIZE,
    DeadLetterDetail,
    DeadLetterList,
    DeadLetterView,
    LetterAction,
    LetterCommand,
    LetterCommandResult,
    LetterRequest,
    LetterResult,
    LetterSelection,
    ReasonList,
    ReasonView,
    is_letter_set,
)
from pop_stream.model.errors import Issue, NotFoundError
from pop_stream.model.identity import Principal
from pop_stream.model.revisions import AuditRecord
from pop_stream.model.tenancy import candidate_ids, display_id
from pop_stream.policy.lifecycle.dead_letters import LetterState
from pop_stream.ports.audit import AuditLog
from pop_stream.ports.dead_letters import (
    MAX_COUNTED,
    DeadLetterStore,
    LetterFilter,
    StoredLetter,
)

_BATCH: Final = 50
"""Letters of a command that are listed in one go; each is then read whole."""

_SHOWN: Final = 20

_log = structlog.get_logger()


class _Listing(LetterSelection):
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = 50


class DeadLetterEndpoints:
    """The handlers of dead letters.

    A customer's filter is narrowed to its own letters before anything is read by it.
    """

    def __init__(
        self,
        store: DeadLetterStore,
        redriver: Redriver,
        audit_log: AuditLog,
        body_reader: BodyReader,
    ) -> None:
        self._store = store
        self._redriver = redriver
        self._audit_log = audit_log
        self._body_reader = body_reader

    async def get_list(self, request: web.Request) -> web.Response:
        """A page of letters, newest first."""
        listing, principal = read_query(request, _Listing), principal_of(request)
        wanted = _filter_of(listing, principal)
        found = await with_timeout(
            self._store.page(wanted, before=listing.before, limit=listing.limit + 1)
        )
        page = found[: listing.limit]
        listed = DeadLetterList(
            letters=[_view(one, principal) for one in page],
            next=page[-1].number if len(found) > len(page) else None,
        )
        return json_response(listed, status=HTTPStatus.OK)

    async def get_reasons(self, request: web.Request) -> web.Response:
        """How many letters fit, by kind and code."""
        selection = read_query(request, LetterSelection)
        wanted = _filter_of(selection, principal_of(request))
        counts = await with_timeout(self._store.reasons(wanted))
        total = sum(one.letters for one in counts)
        listed = ReasonList(
            total=total,
            total_is_capped=total >= MAX_COUNTED,
            reasons=[
                ReasonView(
                    kind=one.kind,
                    code=one.code,
                    letters=one.letters,
                    oldest_at=one.oldest_at,
                    newest_at=one.newest_at,
                    example=one.example,
                )
                for one in counts
            ],
        )
        return json_response(listed, status=HTTPStatus.OK)

    async def get(self, request: web.Request) -> web.Response:
        """One letter, whole."""
        stored = await self._letter(object_of(request))
        letter = stored.letter
        detail = DeadLetterDetail(
            **_fields(stored, principal_of(request)),
            value_base64=base64.b64encode(letter.value).decode(),
            issues=tuple(Issue(one.field, one.value, one.message) for one in letter.issues),
        )
        return json_response(detail, status=HTTPStatus.OK)

    async def post_redrive(self, request: web.Request) -> web.Response:
        """Redrive one letter; a second time does nothing and says so."""
        return await self._command_one(request, "redrive")

    async def post_discard(self, request: web.Request) -> web.Response:
        """Discard one letter; a second time does nothing and says so."""
        return await self._command_one(request, "discard")

    async def post_many(self, request: web.Request) -> web.Response:
        """Redrive or discard all open letters that fit, up to a number."""
        command = await self._body_reader.read_model(request, LetterCommand)
        if not is_letter_set(command.filter):
            remedy = "names no letters; set at least one of its fields besides the state"
            raise InvalidError([Issue("filter", "{}", remedy)])
        principal = principal_of(request)
        wanted = _filter_of(command.filter, principal)
        if not command.dry_run:
            wish = command.model_dump(mode="json", exclude_defaults=True)
            await self._audit(request, "commanded", command.action, wish, command.reason)
        result = await self._command_many(command, wanted, principal)
        if not command.dry_run:
            counts = {"matched": result.matched, **result.outcomes}
            await self._audit(request, "finished", command.action, counts)
        return json_response(result, status=HTTPStatus.OK)

    # ---- inside ----

    async def _command_many(
        self, command: LetterCommand, wanted: LetterFilter, principal: Principal
    ) -> LetterCommandResult:
        """Go through the open letters that fit, newest first, up to `MAX_COMMANDED`."""
        open_only = replace(wanted, states=("open",))
        outcomes: Counter[str] = Counter()
        failures: list[LetterResult] = []
        before, matched, has_more = None, 0, "open" in wanted.states
        while has_more and matched < MAX_COMMANDED:
            page = await with_timeout(
                self._store.page(open_only, before=before, limit=_BATCH + 1)
            )
            for one in page[:_BATCH]:
                done = await self._do(command, one, principal)
                outcomes[done.outcome] += 1
                if done.outcome != "done" and len(failures) < _SHOWN:
                    failures.append(_result(one, command.action, done, "open"))
            matched += len(page[:_BATCH])
            has_more = len(page) > _BATCH
            before = page[_BATCH - 1].number if has_more else None
        return LetterCommandResult(
            action=command.action,
            dry_run=command.dry_run,
            matched=matched,
            outcomes=dict(outcomes),
            has_more=has_more,
            failures=failures,
        )

    async def _do(
        self, command: LetterCommand, listed: StoredLetter, principal: Principal
    ) -> Redriven:
        """What becomes of one of many; of a dry run, what seems to."""
        if command.dry_run:
            obstacle = why_not(listed) if command.action == "redrive" else ""
            return Redriven("not_possible", obstacle) if obstacle else Redriven("done")
        if command.action == "discard":
            return await self._discard(listed, principal, command.reason)
        stored = await self._letter(listed.letter.letter_id)
        return await self._redriver.redrive(stored, principal, command.reason)

    async def _discard(
        self, stored: StoredLetter, principal: Principal, reason: str
    ) -> Redriven:
        was_open = stored.state == "open" and await with_timeout(
            self._store.settle(stored.letter, "discarded", by=principal.name, reason=reason)
        )
        if not was_open:
            return Redriven("already", "it was settled before")
        _log.info("dead_letter.discarded", id=stored.letter.letter_id, reason=reason)
        return Redriven("done")

    async def _command_one(self, request: web.Request, action: LetterAction) -> web.Response:
        wish = await self._body_reader.read_model(request, LetterRequest)
        principal = principal_of(request)
        stored = await self._letter(object_of(request))
        letter_id = stored.letter.letter_id
        facts = {"action": action, "reason": wish.reason}
        await self._audit(request, "commanded", letter_id, facts, wish.reason)
        if action == "redrive":
            done = await self._redriver.redrive(stored, principal, wish.reason)
        else:
            done = await self._discard(stored, principal, wish.reason)
        await self._audit(
            request, "finished", letter_id, {"action": action, "outcome": done.outcome}
        )
        now = (await self._letter(letter_id)).state
        return json_response(_result(stored, action, done, now), status=HTTPStatus.OK)

    async def _letter(self, letter_id: str) -> StoredLetter:
        stored = await with_timeout(self._store.find(letter_id))
        if stored is None:
            kind = "dead letter"
            raise NotFoundError(kind, letter_id)
        return stored

    async def _audit(
        self,
        request: web.Request,
        step: Literal["commanded", "finished"],
        object_id: str,
        facts: Mapping[str, object],
        reason: str = "",
    ) -> None:
        """Record a command before anything is done, and what came of it."""
        entry = AuditRecord(
            author=author_of(request, reason),
            action=step,
            kind="dead-letters",
            object_id=object_id,
            after=facts,
        )
        await with_timeout(self._audit_log.record(entry))


def _filter_of(selection: LetterSelection, principal: Principal) -> LetterFilter:
    """The filter, narrowed to what the caller may see."""
    customers = selection.customer_id
    if principal.customer_id is not None:
        is_own = not customers or principal.customer_id in customers
        customers = (principal.customer_id,) if is_own else ("",)  # nobody's
    agendas = [one for named in selection.agenda_id for one in candidate_ids(named, principal)]
    return LetterFilter(
        ids=selection.ids,
        kinds=selection.kind,
        codes=selection.code,
        customer_ids=customers,
        insight_ids=selection.insight_id,
        agenda_ids=tuple(agendas),
        states=selection.state or ("open",),
        from_at=selection.from_at,
        before_at=selection.before_at,
    )


def _view(stored: StoredLetter, principal: Principal) -> DeadLetterView:
    return DeadLetterView(**_fields(stored, principal))


def _fields(stored: StoredLetter, principal: Principal) -> dict[str, Any]:
    letter = stored.letter
    agenda_id = letter.agenda_id
    return {
        "id": letter.letter_id,
        "kind": letter.kind,
        "state": stored.state,
        "code": letter.code,
        "reason": letter.reason,
        "part": letter.part,
        "at": letter.at,
        "customer_id": letter.customer_id,
        "insight_id": letter.insight_id,
        "agenda_id": agenda_id and display_id(agenda_id, principal.customer_id),
        "webhook_id": letter.webhook_id,
        "url": letter.url,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "truncated": letter.truncated,
        "is_redrivable": stored.state == "open" and not why_not(stored),
        "settled_at": stored.settled_at,
        "settled_by": stored.settled_by,
        "settled_reason": stored.settled_reason,
    }


def _result(
    stored: StoredLetter, action: LetterAction, done: Redriven, state: LetterState
) -> LetterResult:
    return LetterResult(
        id=stored.letter.letter_id,
        action=action,
        outcome=done.outcome,
        state=state,
        detail=done.detail,
    )
