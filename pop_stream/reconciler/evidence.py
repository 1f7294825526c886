"""What Kafka still has of agendas, and what that adds up to: the proof behind a summary."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pop_stream.clock import WallClock
from pop_stream.kafka import clients
from pop_stream.kafka.lifecycle_reader import read
from pop_stream.kafka.topic_reader import read_to_end
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.records import TopicPartition
from pop_stream.settings import Settings

_CLOCK_SKEW: Final = timedelta(days=1)
"""Who accepted an agenda may have had a clock so far ahead of the brokers'."""


@dataclass(frozen=True, slots=True)
class AgendaEvidence:
    """Of one agenda.

    Attributes:
        lifecycle: All its events that Kafka has, from its acceptance on.
        summary: What they add up to.
    """

    lifecycle: Sequence[LifecycleEvent]
    summary: Summary


ReadEvidence = Callable[
    [Collection[str], datetime | None], Awaitable[Mapping[str, AgendaEvidence]]
]
"""`read_evidence` of one cluster."""


async def read_evidence(
    settings: Settings, agenda_ids: Collection[str], since: datetime | None
) -> Mapping[str, AgendaEvidence]:
    """Read `pop.agenda-events` for what it has of these agendas, up to its present end.

    Args:
        settings: Where the cluster is.
        agenda_ids: In memory are the events of these alone.
        since: When the first of them was accepted; None reads all there is.

    Returns:
        By agenda; absent where Kafka does not have its acceptance any more, for then nothing
        can be said.
    """
    if not agenda_ids:
        return {}
    found: dict[str, list[LifecycleEvent]] = {one: [] for one in agenda_ids}
    now, signer = WallClock().now(), RecordSigner(settings.signing_keys)
    starts = await _starts(settings, since)
    async for _, records, _ in read_to_end(settings, starts):
        for record in records:
            for entry in read(record, now=now, signer=signer)[0]:
                if entry.event is not None and entry.event.agenda_id in found:
                    found[entry.event.agenda_id].append(entry.event)
    sums = {one: fold_all(None, events)[0] for one, events in found.items()}
    return {
        one: AgendaEvidence(found[one], summary)
        for one, summary in sums.items()
        if summary is not None and summary.body
    }


async def _starts(settings: Settings, since: datetime | None) -> dict[TopicPartition, int]:
    topic = Topics(settings.topic_prefix).agenda_events
    async with clients.consumer(
        settings, topic, client_id="evidence", group_id=None
    ) as consumer:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        partitions = [TopicPartition(topic, number) for number in numbers]
        if since is None:
            return dict.fromkeys(partitions, 0)
        at_ms = int((since - _CLOCK_SKEW).timestamp() * 1000)
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, at_ms))
        ends = await consumer.end_offsets(partitions)
    return {one: found[one].offset if found[one] else ends[one] for one in partitions}
