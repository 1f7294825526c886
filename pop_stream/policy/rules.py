"""Rules: which records of a topic lead to an agenda, and to which.

A rule that a rule's agenda leads to, as its handler writes to a topic, is one hop further. The
number of hops travels in `tracestate`, which handlers pass on with the other headers of a
trace, so whoever passes on no trace counts as a beginning; the rule's rate bounds these.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

import msgspec

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.identity import ANYONE, Principal, Role
from pop_stream.model.payload_schema import payload_issues
from pop_stream.model.rule import EVENT, Rule
from pop_stream.model.series import Series
from pop_stream.model.template import fill
from pop_stream.model.tenancy import qualified_id
from pop_stream.model.trace import Trace

_HOPS: Final = re.compile(r"(?:^|,)pop=hops:(\d{1,4})(?:,|$)")
_MAX_OTHER_MEMBERS: Final = 31
_MAX_STATE_LENGTH: Final = 2_000

PassedBy = Literal["filtered", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A record of a rule's topic, as far as rules go by it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


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
        source_id = self.rule.source_id(self.record.partition)
        return qualified_id(f"{self.rule.id}.{source_id}-{self.record.offset}", self.rule.owner)

    @property
    def sender(self) -> Principal:
        """Who submits it: the rule's owner, or whoever may for any customer."""
        if self.rule.owner is None:
            return ANYONE
        return Principal(f"rule:{self.rule.id}", self.rule.owner, frozenset({Role.SUBMIT}))

    @property
    def series(self) -> Series:
        """Its place among all records of the partition."""
        source_id = self.rule.source_id(self.record.partition)
        return Series(id=f"rule:{self.rule.id}:{source_id}", position=self.record.offset)

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
        body = fill(rule.submission, {EVENT: event})
        body.setdefault("link_id", rule.id)
        return {**body, "id": self.agenda_id, "series": self.series.model_dump()}


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
    if any(True for _ in misfits(rule, value)):
        return "filtered"
    return RuleFiring(rule, record, value, Trace.of(_text_headers(record.headers)))


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
