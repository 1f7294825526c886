"""Rules: which records of a source lead to something, and to what.

A rule that a rule's agenda leads to, as its handler writes to a topic or as it ends, is one hop
further. The number of hops travels in `tracestate`, which handlers pass on with the other
headers of a trace, so whoever passes on no trace counts as a beginning; the rule's rate bounds
these. Its own agendas' ends lead a rule to nothing.

A rule with an owner meets only ends of the owner's agendas.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Raw
from pydantic import ConfigDict, Field, ValidationError

from pop_stream.model.agenda import Id
from pop_stream.model.definitions import KINDS
from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.events.rules import LinkCommanded, RuleActed, SignalGiven
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.payload_schema import payload_issues
from pop_stream.model.rule import EVENT, LinkTarget, Rule, SignalToGive
from pop_stream.model.series import Series
from pop_stream.model.signal import MAX_SIGNAL_BYTES
from pop_stream.model.template import fill
from pop_stream.model.tenancy import qualified_id
from pop_stream.model.trace import Trace
from pop_stream.model.validation import issues_of

_HOPS: Final = re.compile(r"(?:^|,)pop=hops:(\d{1,4})(?:,|$)")
_MAX_OTHER_MEMBERS: Final = 31
_MAX_STATE_LENGTH: Final = 2_000

PassedBy = Literal["filtered", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """What comes to a rule, as far as rules go by it.

    Attributes:
        place: Within which positions grow; empty for the partition.
        position: There; None for the offset.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    place: str = ""
    position: int | None = None


@dataclass(frozen=True, slots=True)
class RuleFiring:
    """One record that fits a rule, and what is submitted for it.

    Attributes:
        rule: As it is defined when the record is read.
        record: Where it stands names the agenda.
        value: What it holds.
        came_with: The trace in its headers.
    """

    rule: Rule
    record: SourceRecord
    value: object
    came_with: Trace | None = None

    @property
    def agenda_id(self) -> str:
        """The id of its agenda, the same whenever the record is read."""
        named = f"{self.rule.id}.{self._source_id}-{self._position}"
        return qualified_id(named, self.rule.owner)

    @property
    def sender(self) -> Principal:
        """Who submits it: the rule's owner, or whoever may for any customer."""
        if self.rule.owner is None:
            return ANYONE
        return Principal(f"rule:{self.rule.id}", self.rule.owner, frozenset({Role.SUBMIT}))

    @property
    def series(self) -> Series:
        """Its place among all that comes there."""
        return Series(id=f"rule:{self.rule.id}:{self._source_id}", position=self._position)

    @property
    def _source_id(self) -> str:
        return self.rule.source_id(self.record.place or str(self.record.partition))

    @property
    def _position(self) -> int:
        position = self.record.position
        return self.record.offset if position is None else position

    @property
    def hops(self) -> int:
        """How many rules have led to its agenda one after the other, this one included."""
        return 1 + hops_of(self.came_with)

    @property
    def trace(self) -> Trace:
        """Of its agenda: that of the record, or one of its own, with the number of hops."""
        before = self.came_with or Trace()
        hashed = sha256(self.agenda_id.encode()).hexdigest()
        traceparent = before.traceparent or f"00-{hashed[:32]}-{hashed[32:48]}-00"
        others = [
            one
            for one in (before.tracestate or "").split(",")
            if one and not one.startswith("pop=")
        ][:_MAX_OTHER_MEMBERS]
        state = ",".join([f"pop=hops:{self.hops}", *others])
        while len(state) > _MAX_STATE_LENGTH:
            state = state.rpartition(",")[0]
        return Trace(
            traceparent=traceparent, tracestate=state, correlation_id=before.correlation_id
        )

    def body(self) -> dict[str, object]:
        """The submission, with its tokens filled in, an id and a place in the series.

        Raises:
            SubmissionError: If too many rules have led to it, or a token names nothing.
        """
        body = self._filled()
        body.setdefault("link_id", self.rule.id)
        return {**body, "id": self.agenda_id, "series": self.series.model_dump()}

    def act(self, now: datetime) -> RuleActed:
        """What is done in place of a submission.

        Raises:
            SubmissionError: If too many rules have led to it, or what its tokens make of it is
                no link or signal.
        """
        body = self._filled()
        try:
            if self.rule.action == "signal":
                return _signal_given(self.rule, _SIGNAL(body), now)
            target = _TARGET(body)
        except ValidationError as error:
            raise SubmissionError(issues_of(error, document=self.rule.action)) from None
        return LinkCommanded(
            rule_id=self.rule.id,
            at=now,
            action="cancel" if self.rule.action == "cancel" else "release",
            customer_id=target.customer_id,
            link_id=target.link_id,
            reason=target.reason,
        )

    def _filled(self) -> dict[str, object]:
        rule, record = self.rule, self.record
        if self.hops > rule.max_hops:
            message = (
                f"at most {rule.max_hops} rules may lead to an agenda one after the other "
                "(max_hops): see whether this one feeds itself"
            )
            raise SubmissionError([Issue("hops", str(self.hops), message)])
        event = {
            "rule": rule.id,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": None if record.key is None else record.key.decode(errors="replace"),
            "value": self.value,
        }
        return fill(rule.does, {EVENT: event})


class _FilledTarget(LinkTarget):
    model_config = ConfigDict(strict=True)

    customer_id: Id
    link_id: Id
    reason: Annotated[str, Field(max_length=2_000)] = ""


class _FilledSignal(SignalToGive):
    customer_id: Id
    name: Id


_TARGET: Final = _FilledTarget.model_validate
_SIGNAL: Final = _FilledSignal.model_validate


def _signal_given(rule: Rule, wanted: _FilledSignal, now: datetime) -> SignalGiven:
    payload = msgspec.json.encode(wanted.payload)
    if len(payload) > MAX_SIGNAL_BYTES:
        remedy = f"at most {MAX_SIGNAL_BYTES:,} bytes; name where it is stored"
        raise SubmissionError([Issue("payload", f"{len(payload):,} bytes", remedy)])
    return SignalGiven(
        rule_id=rule.id,
        at=now,
        customer_id=wanted.customer_id,
        name=wanted.name,
        keep_s=wanted.keep_s,
        payload=UNSET if wanted.payload is None else Raw(payload),
    )


def match(rule: Rule, record: SourceRecord) -> RuleFiring | PassedBy:
    """What a record leads to; a second call with it comes to the same.

    Args:
        rule: Of the record's topic.
        record: One without a value, or whose value is no JSON, leads to nothing.
    """
    try:
        value: object = msgspec.json.decode(record.value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "unreadable"
    if not _concerns(rule, value) or any(True for _ in misfits(rule, value)):
        return "filtered"
    return RuleFiring(rule, record, value, Trace.of(_text_headers(record.headers)))


def _concerns(rule: Rule, value: object) -> bool:
    """Whether an end is the rule's to know, and no agenda's of its own; true of all else."""
    if rule.on != "agenda.ended":
        return True
    if not isinstance(value, Mapping):
        return False
    is_seen = rule.owner is None or value.get("customer_id") == rule.owner
    return is_seen and not rule.submitted(str(value.get("agenda_id", "")))


def definition_change(key: bytes | None, value: bytes | None, version: int) -> bytes | None:
    """What a rule reads of a record of `pop.definitions`; None if that is no definition.

    Args:
        key: Kind and id.
        value: The definition as JSON; None of one that was deleted.
        version: 0 if the record has none.
    """
    kind, mark, object_id = (key or b"").decode(errors="replace").partition("/")
    if not mark or kind not in KINDS:
        return None  # an API key is no definition
    change = "deleted" if value is None else "created" if version == 1 else "changed"
    head = {"kind": kind, "id": object_id, "version": version, "change": change}
    return msgspec.json.encode({**head, "definition": Raw(value or b"null")})


def key_place(key: bytes | None) -> str:
    """The place of what has this key, within which its positions grow."""
    return sha256(key or b"").hexdigest()[:16]


def misfits(rule: Rule, value: object) -> Iterator[Issue]:
    """Why a record's value does not fit a rule."""
    return payload_issues(rule.where, value, field="value")


def hops_of(trace: Trace | None) -> int:
    """How many rules led to what has this trace; 0 if it does not say."""
    found = _HOPS.search((trace and trace.tracestate) or "")
    return int(found[1]) if found else 0


def _text_headers(headers: Iterable[tuple[str, bytes | None]]) -> Mapping[str, str]:
    return {
        name.lower(): (value or b"").decode("ascii", errors="replace")
        for name, value in headers
    }
