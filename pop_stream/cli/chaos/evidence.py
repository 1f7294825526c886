"""What really happened, by Kafka's records, Postgres' rows and the file of starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pop_stream.bus.topics import Topics
from pop_stream.bus.whole import read_topic
from pop_stream.cli.chaos.handlers import Start, read_starts
from pop_stream.cli.chaos.load import INSIGHTS
from pop_stream.clock import WallClock
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    LifecycleEvent,
    decode_emitted,
    decode_lifecycle,
    checked_value,
)
from pop_stream.core.lifecycle.fold import fold_all
from pop_stream.core.lifecycle.summary import Summary
from pop_stream.settings import Settings
from pop_stream.store.ledger import SummaryState, PostgresSummaryScan
from pop_stream.store.pool import open_pool


@dataclass(frozen=True, slots=True)
class RecordedEmission:
    """One record on an insight's topic; records of one round share the instant."""

    agenda_id: str
    attempt: int
    insight_id: str
    emitted_at: float


@dataclass(slots=True)
class ChaosEvidence:
    """Everything that is judged; instants in seconds since the epoch.

    Attributes:
        accepted_at: Of agendas that `agenda.accepted` tells of: the first time.
        insights: By agenda, where it was placed.
        claims: (agenda, attempt) of every claim.
        folded: What Kafka's events add up to, by agenda.
        entries: What Postgres has.
        emissions: In the order of their partitions.
        starts: In order of time.
        gathered_at: When this was looked at; what had not begun then still waited.
    """

    accepted_at: dict[str, float] = field(default_factory=dict)
    insights: dict[str, str] = field(default_factory=dict)
    claims: set[tuple[str, int]] = field(default_factory=set)
    folded: dict[str, Summary] = field(default_factory=dict)
    entries: Mapping[str, SummaryState] = field(default_factory=dict)
    emissions: list[RecordedEmission] = field(default_factory=list)
    starts: Sequence[Start] = ()
    gathered_at: float = 0.0
    dead_letters: int = 0


async def gather_evidence(settings: Settings, prefix: str, starts: Path) -> ChaosEvidence:
    """Read it all.

    Args:
        settings: Where Kafka and Postgres are.
        prefix: Of the run's agenda ids; others are left aside.
        starts: The file that handlers wrote.
    """
    evidence = ChaosEvidence(starts=sorted(read_starts(starts), key=lambda one: one.at))
    await _read_lifecycle(settings, prefix, evidence)
    topics = Topics(settings.topic_prefix)
    for insight_id in INSIGHTS:
        async for record in read_topic(settings, topics.insight(insight_id)):
            emitted = decode_emitted(checked_value(record))
            at = emitted.emitted_at.timestamp()
            evidence.emissions.append(
                RecordedEmission(emitted.agenda_id, emitted.attempt, insight_id, at)
            )
    async for _ in read_topic(settings, topics.dead_letters):
        evidence.dead_letters += 1
    evidence.entries = await _entries(settings, evidence.folded)
    evidence.gathered_at = WallClock().now().timestamp()
    return evidence


async def _read_lifecycle(settings: Settings, prefix: str, evidence: ChaosEvidence) -> None:
    told: dict[str, list[LifecycleEvent]] = {}
    topic = Topics(settings.topic_prefix).agenda_events
    async for record in read_topic(settings, topic):
        try:
            lifecycle = decode_lifecycle(checked_value(record))
        except UnreadableRecordError:
            continue
        for event in lifecycle:
            if event.agenda_id.startswith(prefix):
                told.setdefault(event.agenda_id, []).append(event)
                _note(evidence, event)
    for agenda_id, lifecycle in told.items():
        summary, _ = fold_all(None, lifecycle)
        if summary is not None:
            evidence.folded[agenda_id] = summary


def _note(evidence: ChaosEvidence, event: LifecycleEvent) -> None:
    match event:
        case AgendaAccepted():
            evidence.accepted_at.setdefault(event.agenda_id, event.at.timestamp())
            evidence.insights[event.agenda_id] = event.insight_id
        case AgendaClaimed():
            evidence.claims.add((event.agenda_id, event.attempt))
        case _:
            pass


async def _entries(
    settings: Settings, wanted: Mapping[str, object]
) -> Mapping[str, SummaryState]:
    async with open_pool(settings) as pool:
        return await PostgresSummaryScan(pool).entries([*wanted])
