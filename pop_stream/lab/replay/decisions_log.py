"""The record of an insight: everything its rounds were decided from, read as it is needed."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from pop_stream.kafka.topic_reader import iterate_sync, read_partition, read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.lab.replay.replay import (
    ReadyInput,
    ReplayStart,
    UnreadableRecord,
    final_decisions,
    replay_starts,
)
from pop_stream.model.definitions import Definitions, decode_definition
from pop_stream.model.errors import NotFoundError, UnreadableRecordError
from pop_stream.model.events.record_splitting import readable_events
from pop_stream.model.events.scheduling import InsightAgendasRouted, ReadyEvent, RoundDecided
from pop_stream.model.events.schema_version import checked_value
from pop_stream.policy.backlog.checkpoint import RoundCheckpoint
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

_DECISION = msgspec.json.Decoder(RoundDecided | RoundCheckpoint)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FIRST_CHECKPOINTS: Final = 4


@dataclass(frozen=True, slots=True)
class DecisionHistory:
    """What is on record of one insight.

    Attributes:
        inputs: Its events on `pop.ready`.
        decisions: Its rounds that counted, in order.
        versions: Definitions by version, as far as compaction left them.
        beginnings: States that a replay can start with, besides round 1's.
        unreadable: What was skipped; costs no further reading once all inputs were used.
    """

    inputs: Iterable[ReadyInput]
    decisions: Sequence[RoundDecided]
    versions: Sequence[Definitions]
    beginnings: Sequence[ReplayStart] = ()
    unreadable: Iterable[UnreadableRecord] = ()

    def definitions_at(self, version: int) -> Definitions:
        """The newest definitions that are not newer than this version."""
        known = [one for one in self.versions if one.version <= version]
        return known[-1] if known else Definitions()


def read_history(
    settings: Settings, insight_id: str, *, figures: bool = True
) -> DecisionHistory:
    """Read what the topics still hold about an insight, but its inputs, which are streamed.

    Not to be called where an event loop runs, nor are inputs to be read there.

    Args:
        settings: Where the topics are.
        insight_id: Whose.
        figures: Whether its rounds keep the figures of customers, which take most memory.

    Raises:
        NotFoundError: If no round of it is on record.
    """
    topics = Topics(settings.topic_prefix)
    first = _DecisionReader(settings, topics, insight_id, figures=figures)
    if not first.rounds:
        kind = "round on record of an insight"
        raise NotFoundError(kind, insight_id)
    rounds = final_decisions(first.rounds)
    inputs = ReplayInputs(settings, topics, insight_id, rounds[-1])
    known = _known_beginnings(first, inputs, rounds)
    versions = [*_versions(settings, topics)]
    return DecisionHistory(
        inputs, rounds, versions, known, _UnreadableRecords(first.unreadable, inputs)
    )


@dataclass(slots=True)
class _DecisionReader:
    """One reading of the decisions.

    Attributes:
        figures: Whether rounds keep the figures of customers.
        most: Checkpoints to keep, the oldest, beside all of restarts: there may be many.
        after: Up to this one they are left aside.
    """

    settings: Settings
    topics: Topics
    insight_id: str
    figures: bool
    most: int = _FIRST_CHECKPOINTS
    after: tuple[int, datetime] | None = None
    rounds: list[RoundDecided] = field(default_factory=list)
    parts: list[RoundCheckpoint] = field(default_factory=list)
    tried: dict[tuple[int, datetime], None] = field(default_factory=dict)
    unreadable: list[UnreadableRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        for record in iterate_sync(read_topic(self.settings, self.topics.decisions)):
            if record.key == self.insight_id.encode():
                self._add(record)

    def next(self) -> "_DecisionReader":
        """The same with the checkpoints that follow those tried, twice as many."""
        return replace(
            self,
            most=2 * self.most,
            after=max(self.tried),
            rounds=[],
            parts=[],
            tried={},
            unreadable=[],
        )

    def _add(self, record: ConsumedRecord) -> None:
        try:
            one = _DECISION.decode(checked_value(record) or b"")
        except (*_UNREADABLE, UnreadableRecordError) as error:
            self.unreadable.append(_unreadable(record, str(error), is_decision=True))
            return
        if isinstance(one, RoundDecided):
            shown = one if self.figures else msgspec.structs.replace(one, customers=())
            self.rounds.append(shown)
        elif one.begins or self._is_tried(one):
            self.parts.append(one)

    def _is_tried(self, part: RoundCheckpoint) -> bool:
        name = part.round, part.at
        if self.after is not None and name <= self.after:
            return False
        if len(self.tried) < self.most:
            self.tried[name] = None
        return name in self.tried


def _known_beginnings(
    found: _DecisionReader, inputs: "ReplayInputs", rounds: Sequence[RoundDecided]
) -> list[ReplayStart]:
    """From restarts, and unless the first round is on record from the oldest checkpoint."""
    placings = _RoutedInputs(inputs)
    if rounds[0].round == 1:
        restarts = [part for part in found.parts if part.begins]
        return replay_starts(restarts, placings, rounds)
    while True:
        known = replay_starts(found.parts, placings, rounds)
        is_begun = any(not one.begins for one in known)
        if is_begun or len(found.tried) < found.most:
            oldest = next((one for one in known if not one.begins), None)
            return [one for one in known if one.begins or one is oldest]
        found = found.next()


class ReplayInputs:
    """Events of an insight on `pop.ready` up to the last round's; read again each time."""

    def __init__(
        self, settings: Settings, topics: Topics, insight_id: str, last: RoundDecided
    ) -> None:
        self._settings = settings
        self._insight_id = insight_id
        self._place = TopicPartition(topics.ready, last.partition)
        self._end = last.offset + 1
        self._missed: dict[tuple[int, str], UnreadableRecord] | None = None

    @property
    def unreadable(self) -> Sequence[UnreadableRecord]:
        """What was skipped; the first call reads all inputs if nobody has yet."""
        if self._missed is None:
            deque(self, maxlen=0)
        return [*(self._missed or {}).values()]

    def __iter__(self) -> Iterator[ReadyInput]:
        missed: dict[tuple[int, str], UnreadableRecord] = {}
        for record in iterate_sync(read_partition(self._settings, self._place)):
            if record.offset >= self._end:
                break
            events, reasons = _usable(record)
            if record.key in {None, self._insight_id.encode()}:
                for why in reasons:
                    missed[record.offset, why] = _unreadable(record, why, is_decision=False)
            for event in events:
                if event.insight_id == self._insight_id:
                    yield ReadyInput(record.offset, event, record.timestamp / 1000)
        self._missed = missed


def _usable(record: ConsumedRecord) -> tuple[Sequence[ReadyEvent], Sequence[str]]:
    try:
        return readable_events(checked_value(record))
    except UnreadableRecordError as error:
        return (), (str(error),)


@dataclass(frozen=True, slots=True)
class _UnreadableRecords:
    decisions: Sequence[UnreadableRecord]
    inputs: ReplayInputs

    def __iter__(self) -> Iterator[UnreadableRecord]:
        yield from self.decisions
        yield from self.inputs.unreadable


@dataclass(frozen=True, slots=True)
class _RoutedInputs:
    inputs: ReplayInputs

    def __iter__(self) -> Iterator[tuple[int, InsightAgendasRouted]]:
        for one in self.inputs:
            if isinstance(one.event, InsightAgendasRouted):
                yield one.offset, one.event


def _versions(settings: Settings, topics: Topics) -> Iterator[Definitions]:
    current = Definitions()
    for record in iterate_sync(read_topic(settings, topics.definitions)):
        key = (record.key or b"").decode(errors="replace")
        try:
            updated = current.updated(key, decode_definition(key, record.value))
        except UnreadableRecordError:
            continue
        current = replace(updated, version=record.offset + 1)
        yield current


def _unreadable(record: ConsumedRecord, reason: str, *, is_decision: bool) -> UnreadableRecord:
    return UnreadableRecord(record.topic, record.partition, record.offset, reason, is_decision)
