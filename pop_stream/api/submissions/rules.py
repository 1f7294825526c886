"""Rules beside their definitions: what became of their records, and what one would lead to."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from pop_stream.api.definitions.resource import DefinitionEndpoints
from pop_stream.api.http.answers import json_response
from pop_stream.api.http.body import BodyReader
from pop_stream.api.http.errors import TooLargeError
from pop_stream.api.submissions.validator import SubmissionValidator
from pop_stream.api_models.rules import RuleProgress, RuleSample, RuleTest
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definition, kind_of
from pop_stream.model.errors import DefinitionError, ForbiddenError, Issue, SubmissionError
from pop_stream.model.events.rules import RuleState
from pop_stream.model.rule import Rule
from pop_stream.policy.rules import RuleFiring, SourceRecord, match, misfits

RuleStatesOf = Callable[[str], Sequence[RuleState]]
"""The last rows of a rule that are known here."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_MAX_ISSUES: Final = 10


class RuleEndpoints:
    """The handlers of a rule's routes beside those of every definition.

    Args:
        rules: As they are defined now.
        states_of: What became of the records of each, a moment ago.
        validator: Admits what a rule submits.
        now: The present instant.
        body_reader: Reads requests' bodies.
    """

    def __init__(
        self,
        rules: DefinitionEndpoints,
        states_of: RuleStatesOf,
        validator: SubmissionValidator,
        body_reader: BodyReader,
        now: Callable[[], datetime],
    ) -> None:
        self._rules = rules
        self._states_of = states_of
        self._validator = validator
        self._body_reader = body_reader
        self._now = now

    async def get_progress(self, request: web.Request) -> web.Response:
        """What became of its records."""
        rule = await self._find(request)
        return json_response(_progress(rule, self._states_of(rule.id)), status=HTTPStatus.OK)

    async def post_test(self, request: web.Request) -> web.Response:
        """What a record would lead to."""
        sample = await self._body_reader.read_model(request, RuleSample)
        rule = await self._find(request)
        record = SourceRecord(
            topic=rule.source,
            partition=sample.partition,
            offset=sample.offset,
            key=None if sample.key is None else sample.key.encode(),
            value=msgspec.json.encode(sample.value),
            headers=tuple((name, one.encode()) for name, one in sample.headers.items()),
        )
        found = match(rule, record)
        if isinstance(found, RuleFiring):
            shown = self._tested(found)
        else:
            issues = tuple(misfits(rule, sample.value))[:_MAX_ISSUES]
            shown = RuleTest(matches=False, issues=issues)
        return json_response(shown, status=HTTPStatus.OK)

    def _tested(self, firing: RuleFiring) -> RuleTest:
        if firing.rule.action != "submission":
            return self._acted(firing)
        try:
            raw = msgspec.json.encode(firing.body())
            submission = self._validator.validate(raw, firing.sender)
        except SubmissionError as error:
            issues = tuple(error.issues)
        except (ForbiddenError, TooLargeError) as error:
            issues = (Issue("submission", firing.rule.id, str(error)),)
        else:
            return RuleTest(
                matches=True,
                action=firing.rule.action,
                hops=firing.hops,
                agenda_id=submission.agenda_id,
                agenda=msgspec.json.decode(submission.value),
                insight_id=submission.insight_id,
            )
        return RuleTest(
            matches=True,
            action=firing.rule.action,
            hops=firing.hops,
            agenda_id=firing.agenda_id,
            issues=issues,
        )

    def _acted(self, firing: RuleFiring) -> RuleTest:
        shown = RuleTest(matches=True, action=firing.rule.action, hops=firing.hops)
        try:
            event = firing.act(self._now())
        except SubmissionError as error:
            return msgspec.structs.replace(shown, issues=tuple(error.issues))
        target = msgspec.to_builtins(event)
        left_out = {"type", "rule_id", "at", "action"}
        target = {name: one for name, one in target.items() if name not in left_out}
        return msgspec.structs.replace(shown, target=target)

    async def _find(self, request: web.Request) -> Rule:
        stored = await self._rules.find(request)
        if not isinstance(stored.definition, Rule):
            raise TypeError(stored.kind)
        return stored.definition


def refuse_own_topics(topics: Topics) -> Callable[[Definition], None]:
    """A check of definitions: no rule reads what the service itself writes.

    Raises:
        DefinitionError: By the check, if one would.
    """

    def check(definition: Definition) -> None:
        if not isinstance(definition, Rule) or definition.topic is None:
            return
        if topics.is_own(definition.topic):
            message = "is a topic of the service itself, which a rule would feed; name yours"
            issue = Issue("topic", definition.topic, message)
            raise DefinitionError(kind_of(definition), [issue])

    return check


def _progress(rule: Rule, rows: Sequence[RuleState]) -> RuleProgress:
    """The sum of a rule's rows; those about another source are of no account."""
    known = [one for one in rows if one.source == rule.source]
    fault = next((one.fault for one in known if one.fault), "")
    failed = max(known, key=lambda one: one.last_failure_at or _NEVER, default=None)
    fired = [one.last_fired_at for one in known if one.last_fired_at is not None]
    return RuleProgress(
        status="paused" if rule.paused else "waiting" if fault else "reading",
        fault=fault,
        fired=sum(one.fired for one in known),
        filtered=sum(one.filtered for one in known),
        unreadable=sum(one.unreadable for one in known),
        failures=sum(one.failures for one in known),
        last_fired_at=max(fired, default=None),
        last_failure_at=failed.last_failure_at if failed else None,
        last_failure=failed.last_failure if failed else "",
    )
