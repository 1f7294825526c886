"""Gathers the evidence of a chaos run, and evaluates it against what is promised.

`gather_evidence` reads Kafka's records, Postgres' rows and the file of starts. `evaluate` is
pure: from the same evidence it comes to the same verdict.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Final

from pop_stream.clock import WallClock
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.lab.chaos.faults import FaultRecord
from pop_stream.lab.chaos.handlers import Start, read_starts
from pop_stream.lab.chaos.load import INSIGHTS
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_emitted, decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaClaimed, LifecycleEvent
from pop_stream.model.events.schema_version import checked_value
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.postgres.ledger import PostgresSummaryScan, SummaryState
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings


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
        accepted_at: Of agendas that an `agenda.accepted` is about: the first time.
        insights: By agenda, where it was routed to.
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
    """Read all evidence of a run.

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
    by_agenda: dict[str, list[LifecycleEvent]] = {}
    topic = Topics(settings.topic_prefix).agenda_events
    async for record in read_topic(settings, topic):
        try:
            lifecycle = decode_lifecycle(checked_value(record))
        except UnreadableRecordError:
            continue
        for event in lifecycle:
            if event.agenda_id.startswith(prefix):
                by_agenda.setdefault(event.agenda_id, []).append(event)
                _note(evidence, event)
    for agenda_id, lifecycle in by_agenda.items():
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
        return await PostgresSummaryScan(pool).states([*wanted])


MAX_PAUSE_S: Final = 10.0
"""What is promised: within this, work that is ready is started by someone."""

RECOVERY_WINDOW_S: Final = 15.0
"""How long after a fault repeats may follow from it: a session's end, and reading anew."""

REQUIRED_PARTS: Final = ("kafka", "ingest", "scheduler", "puller")
"""What each start needs one of: while all that there are of it are down or frozen, so that
nobody can take their place, nothing is promised. One that is killed is back at once."""

Span = tuple[float, float]

_MAX_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class ChaosVerdict:
    """What a run came to.

    Attributes:
        accepted: Agendas that were acknowledged to their submitter, or published as accepted.
        terminal: Those that have ended, by their summary in Postgres.
        lost: Those that have not.
        failed: Of those that have: dead-lettered after the last attempt, though no work
            fails by itself.
        refused: Likewise: refused after they were acknowledged.
        disagreeing: Agendas of which Postgres says something else than Kafka's events.
        unclaimed_starts: (agenda, attempt) that were started and never claimed.
        duplicate_starts: Starts of an attempt beyond its first that follow from no fault.
        excused_starts: Such starts within a fault's aftermath.
        rounds_repeated: Emission rounds of which something was emitted again.
        worst_pause_s: Longest stretch without a start in an insight while something that was
            submitted waited for its first, and of nothing that starts need all were away.
        longest_wait_s: Of any agenda, from its submission to its first start.
        faults: Those that may repeat a round: all but replacements.
        cut_off: Parts that were replaced, and had not ended by themselves within their grace.
        started_again: Agendas of which a second attempt was started though all faults were
            replacements, which cut nothing off.
    """

    accepted: int
    terminal: int
    lost: Sequence[str]
    failed: int
    refused: int
    disagreeing: Sequence[str]
    unclaimed_starts: Sequence[str]
    duplicate_starts: int
    excused_starts: int
    rounds_repeated: int
    worst_pause_s: float
    longest_wait_s: float = 0.0
    recovery_s: Mapping[str, float] = field(default_factory=dict)
    faults: int = 0
    cut_off: Sequence[str] = ()
    started_again: Sequence[str] = ()

    def broken(self) -> Iterator[str]:
        """The promises that were not kept, in words."""
        if self.lost:
            yield f"lost: {len(self.lost)} agendas, such as {shortened(self.lost)}"
        if self.failed or self.refused:
            failed, refused = self.failed, self.refused
            yield f"{failed} agendas were dead-lettered, {refused} refused once acknowledged"
        if self.disagreeing:
            yield f"Postgres disagrees with Kafka: {shortened(self.disagreeing)}"
        if self.unclaimed_starts:
            yield f"started without a claim: {shortened(self.unclaimed_starts)}"
        if self.duplicate_starts:
            yield f"{self.duplicate_starts} attempts were started again without a fault"
        if self.rounds_repeated > self.faults:
            yield f"{self.rounds_repeated} rounds were emitted again, by {self.faults} faults"
        yield from self._broken_by_replacement()
        if self.worst_pause_s > MAX_PAUSE_S:
            yield f"nothing was started for {self.worst_pause_s:.1f} s while work was ready"

    def _broken_by_replacement(self) -> Iterator[str]:
        if self.cut_off:
            yield f"not stopped within their grace: {shortened(self.cut_off)}"
        if self.started_again:
            yield f"another attempt followed a replacement: {shortened(self.started_again)}"


def evaluate(
    evidence: ChaosEvidence,
    acknowledged: Mapping[str, float],
    faults: Sequence[FaultRecord],
    parts: Sequence[str] = (),
) -> ChaosVerdict:
    """Evaluate the evidence against every promise.

    Args:
        evidence: What is on record.
        acknowledged: Agendas whose acceptance their submitter was answered, with when.
        faults: What was done.
        parts: Which there are, brokers among them; several of a kind are numbered.
    """
    since = _waiting_since(evidence, acknowledged)
    accepted = since.keys()
    states = Counter(entry.state for one, entry in evidence.entries.items() if one in accepted)
    ended = {one for one, entry in evidence.entries.items() if entry.state.is_terminal}
    repeats = [*_duplicate_starts(evidence.starts)]
    unplanned = [one for one in faults if one.fault.kind != "replace"]
    excused = sum(_is_excused(again, unplanned) for again in repeats)
    started = {(one.agenda_id, one.attempt) for one in evidence.starts}
    return ChaosVerdict(
        accepted=len(accepted),
        terminal=len(accepted & ended),
        lost=sorted(accepted - ended),
        failed=states[State.FAILED],
        refused=states[State.REFUSED],
        disagreeing=sorted(_disagreeing(evidence)),
        unclaimed_starts=sorted(f"{one}#{number}" for one, number in started - evidence.claims),
        duplicate_starts=len(repeats) - excused,
        excused_starts=excused,
        rounds_repeated=_rounds_repeated(evidence),
        worst_pause_s=max(_pauses(evidence, since, _outages(faults, parts)), default=0.0),
        longest_wait_s=max(_waits(evidence, since), default=0.0),
        recovery_s=_recoveries(evidence, faults),
        faults=len(unplanned),
        cut_off=sorted({one.fault.part for one in faults if not one.in_order}),
        started_again=[] if unplanned else _started_again(evidence.starts),
    )


def worst_pause_s(
    since: Mapping[str, float],
    starts: Sequence[Start],
    outages: Sequence[Span] = (),
    until: float | None = None,
) -> float:
    """The longest stretch without any start while an agenda waited for its first.

    Args:
        since: From when on each agenda waited.
        starts: In order of time.
        outages: From and until when nothing could be started; a stretch counts from then.
        until: What was not started by then waited until then; None leaves it out.
    """
    first = _first_starts(starts)
    ends = {one: first.get(one, until) for one in since}
    waits = sorted((since[one], end) for one, end in ends.items() if end is not None)
    places = [start.at for start in starts]
    stretches = pairwise([0.0, *places, *([] if until is None else [until])])
    worst, waiting_since = 0.0, iter(waits)
    held: list[tuple[float, float]] = []
    ahead = next(waiting_since, None)
    for begin, end in stretches:
        while ahead is not None and ahead[0] < end:
            held.append(ahead)
            ahead = next(waiting_since, None)
        held = [wait for wait in held if wait[1] >= end]
        begun = min((at for at, _ in held), default=end)
        over = max((until for at, until in outages if at < end), default=0.0)
        worst = max(worst, end - max(begin, begun, over))
    return worst


def _waiting_since(
    evidence: ChaosEvidence, acknowledged: Mapping[str, float]
) -> Mapping[str, float]:
    """From when on each agenda waited: its submitter was answered, or ingest took it."""
    accepted = evidence.accepted_at
    both = {*acknowledged, *accepted}
    return {one: min(acknowledged.get(one, inf), accepted.get(one, inf)) for one in both}


def _outages(faults: Sequence[FaultRecord], parts: Sequence[str]) -> list[Span]:
    """From and until when all of one kind that starts need were away."""
    away: list[Span] = []
    for kind in REQUIRED_PARTS:
        copies = [one for one in parts if re.fullmatch(rf"{kind}(-\d+)?", one)]
        together: list[Span] = [(0.0, inf)]
        for copy in copies:
            own = [(one.at, one.until) for one in faults if _is_away(one, copy)]
            both = [(max(a, b), min(c, d)) for a, c in together for b, d in own]
            together = [(begin, end) for begin, end in both if begin < end]
        away += together if copies else []
    return away


def _is_away(injected: FaultRecord, part: str) -> bool:
    return injected.fault.part == part and injected.fault.kind not in {"kill", "replace"}


def _pauses(
    evidence: ChaosEvidence, since: Mapping[str, float], outages: Sequence[Span]
) -> Iterator[float]:
    """The longest pause of each insight, so that no insight hides another's."""
    by_insight: dict[str, dict[str, float]] = {}
    started = {one.agenda_id for one in evidence.starts}
    for agenda_id, at in since.items():
        entry = evidence.entries.get(agenda_id)
        if agenda_id in started or entry is None or not entry.state.is_terminal:
            by_insight.setdefault(evidence.insights.get(agenda_id, ""), {})[agenda_id] = at
    for waiting in by_insight.values():
        own = [one for one in evidence.starts if one.agenda_id in waiting]
        yield worst_pause_s(waiting, own, outages, evidence.gathered_at or None)


def _waits(evidence: ChaosEvidence, since: Mapping[str, float]) -> Iterator[float]:
    first = _first_starts(evidence.starts)
    return (first[one] - at for one, at in since.items() if one in first)


def _first_starts(starts: Sequence[Start]) -> Mapping[str, float]:
    first: dict[str, float] = {}
    for start in starts:
        first.setdefault(start.agenda_id, start.at)
    return first


def _duplicate_starts(starts: Sequence[Start]) -> Iterator[Start]:
    """Every start of an operation's attempt beyond the first."""
    known: set[tuple[str, int, str]] = set()
    for start in starts:
        key = (start.agenda_id, start.attempt, start.operation)
        if key in known:
            yield start
        known.add(key)


def _is_excused(again: Start, faults: Sequence[FaultRecord]) -> bool:
    return any(one.at <= again.at <= one.until + RECOVERY_WINDOW_S for one in faults)


def _started_again(starts: Sequence[Start]) -> list[str]:
    return sorted({one.agenda_id for one in starts if one.attempt > 1})


def _rounds_repeated(evidence: ChaosEvidence) -> int:
    """Rounds of which at least one record was emitted again, in whatever later rounds."""
    emitted: dict[tuple[str, int], float] = {}
    repeated: set[tuple[str, float]] = set()
    for one in evidence.emissions:
        key = (one.agenda_id, one.attempt)
        if key in emitted:
            repeated.add((one.insight_id, emitted[key]))
        emitted.setdefault(key, one.emitted_at)
    return len(repeated)


def _disagreeing(evidence: ChaosEvidence) -> Iterator[str]:
    for agenda_id, folded in evidence.folded.items():
        entry = evidence.entries.get(agenda_id)
        if entry is None:
            yield f"{agenda_id}: {folded.state.value} and no row"
        elif (entry.state, entry.attempt) != (folded.state, folded.attempt):
            yield (
                f"{agenda_id}: {folded.state.value} of attempt {folded.attempt}, "
                f"the row {entry.state.value} of {entry.attempt}"
            )


def _recoveries(evidence: ChaosEvidence, faults: Sequence[FaultRecord]) -> Mapping[str, float]:
    """By part, the longest time from a fault to the next start of anything that waited then."""
    found: dict[str, float] = {}
    for one in faults:
        after = (start.at for start in evidence.starts if start.at >= one.at)
        soonest = next(after, None)
        if soonest is not None:
            found[one.fault.part] = max(found.get(one.fault.part, 0.0), soonest - one.at)
    return {part: round(seconds, 3) for part, seconds in sorted(found.items())}


def shortened(names: Sequence[str]) -> str:
    """The first of many names, and how many there are besides."""
    left = len(names) - _MAX_SHOWN
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {left} more" if left > 0 else "")
