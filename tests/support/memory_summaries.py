"""Both ports of the summaries in memory; the contract suite holds it to them."""

import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from pop_stream.model.errors import OffsetsMovedError, UnstorableError
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.ids import alternate_ids
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.states import AttemptStatus, State
from pop_stream.policy.lifecycle.summary import LinkSummary, Summary
from pop_stream.ports.agendas import (
    MAX_COUNTED,
    AgendaCount,
    AgendaCursor,
    AgendaFilter,
    AgendaListItem,
    AgendaPage,
    PayloadMatch,
)
from pop_stream.ports.summaries import (
    AcceptedBody,
    Callback,
    FoldedBatch,
    LinkScope,
    ReusableIds,
    SummaryChange,
)


class MemorySummaries:
    """Summaries in a dict; `failures` are raised by the next calls, in order."""

    def __init__(self) -> None:
        self.agendas: dict[str, Summary] = {}
        self.versions: Counter[str] = Counter()
        self.offsets: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self.failures: list[Exception] = []
        self.deleted_until: datetime | None = None
        self.reported: dict[str, list[Callback]] = {}

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        self._fail()
        return dict(self.offsets[topic])

    async def fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        lifecycle: Sequence[LifecycleEvent],
        before_commit: Callable[[Sequence[SummaryChange]], Awaitable[None]] | None = None,
    ) -> FoldedBatch:
        self._fail()
        kept = dict(self.agendas), Counter(self.versions)
        known = self.offsets[topic]
        if any(known.get(partition, 0) != start for partition, (start, _) in spans.items()):
            msg = f"partitions of {topic} were moved"
            raise OffsetsMovedError(msg)
        if any("\0" in event.agenda_id for event in lifecycle):
            msg = "an id holds a NUL character"
            raise UnstorableError(msg)
        touched = dict.fromkeys(event.agenda_id for event in lifecycle)
        before = {one: self.agendas[one] for one in touched if one in self.agendas}
        skipped = sum(self._fold_one(event) for event in lifecycle)
        changes = [SummaryChange(before.get(one), self.agendas[one]) for one in touched]
        if before_commit is not None:
            try:
                await before_commit(changes)
            except BaseException:
                self.agendas, self.versions = kept
                raise
        known.update((partition, end) for partition, (_, end) in spans.items())
        return FoldedBatch(applied=len(lifecycle) - skipped, skipped=skipped, changes=changes)

    async def agenda(self, agenda_id: str) -> Summary | None:
        self._fail()
        return self.agendas.get(agenda_id)

    async def attempt_status(self, agenda_id: str) -> AttemptStatus | None:
        self._fail()
        known = self.agendas.get(agenda_id)
        return None if known is None else AttemptStatus(known.attempt, known.state)

    async def callbacks(self, agenda_id: str, *, limit: int) -> Sequence[Callback]:
        self._fail()
        return self.reported.get(agenda_id, [])[:limit]

    async def agenda_owners(self, agenda_ids: Sequence[str]) -> Mapping[str, str]:
        self._fail()
        known = self.agendas
        return {one: known[one].customer_id for one in agenda_ids if one in known}

    async def find_by_name(self, named: str) -> Sequence[str]:
        self._fail()
        own = [one for one in self.agendas if one.startswith(f"{named}@")]
        return [one for one in self.agendas if one == named] + own[:2]

    async def accepted_bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, AcceptedBody]:
        self._fail()
        known = [self.agendas[one] for one in agenda_ids if one in self.agendas]
        return {
            one.agenda_id: AcceptedBody(one.customer_id, one.body)
            for one in known
            if one.body and one.state is not State.REFUSED
        }

    async def reusable_ids(self, agenda_ids: Sequence[str]) -> ReusableIds:
        self._fail()
        known = [self.agendas[one] for one in agenda_ids if one in self.agendas]
        refused = (one.agenda_id for one in known if one.state is State.REFUSED)
        return ReusableIds(frozenset(refused), self.deleted_until)

    async def link(self, link: LinkScope) -> LinkSummary | None:
        self._fail()
        linked = [one for one in self.agendas.values() if _is_in(one, link)]
        if not linked:
            return None
        percent = sum(one.percent for one in linked) / len(linked)
        return LinkSummary(link.link_id, Counter(one.state for one in linked), percent)

    async def agenda_versions(self, agenda_ids: Sequence[str]) -> Mapping[str, int]:
        self._fail()
        return {one: self.versions[one] for one in agenda_ids if one in self.agendas}

    async def link_versions(self, links: Sequence[LinkScope]) -> Mapping[LinkScope, int]:
        self._fail()
        versions: Counter[LinkScope] = Counter()
        for agenda_id, one in self.agendas.items():
            for link in links:
                if _is_in(one, link):
                    versions[link] += self.versions[agenda_id]
        return versions

    async def ping(self) -> None:
        self._fail()

    async def find(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> Sequence[Summary]:
        self._fail()
        fit = sorted(self._fitting(wanted), key=_place, reverse=newest_first)
        if after is not None:
            at = (after.accepted_at or LONG_AGO, after.agenda_id)
            fit = [
                one for one in fit if (_place(one) < at if newest_first else _place(one) > at)
            ]
        return [replace(one, body=b"", operations={}) for one in fit[:limit]]

    async def page(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> AgendaPage:
        found = await self.find(wanted, limit=limit + 1, after=after, newest_first=newest_first)
        last = found[limit - 1] if len(found) > limit else None
        following = AgendaCursor(last.accepted_at, last.agenda_id) if last else None
        return AgendaPage([self._listed(one) for one in found[:limit]], following)

    def _listed(self, one: Summary) -> AgendaListItem:
        now = self.agendas[one.agenda_id]
        return AgendaListItem(one, now.percent, *alternate_ids(now.body))

    async def count(self, wanted: AgendaFilter) -> AgendaCount:
        self._fail()
        found = len(self._fitting(wanted))
        return AgendaCount(min(found, MAX_COUNTED), found > MAX_COUNTED)

    async def load_details(self, summaries: Sequence[Summary]) -> Sequence[Summary]:
        self._fail()
        known = (self.agendas.get(one.agenda_id) for one in summaries)
        return [
            replace(one, body=now.body, operations=now.operations) if now else one
            for one, now in zip(summaries, known, strict=True)
        ]

    async def delete(self, agenda_ids: Sequence[str]) -> Sequence[str]:
        self._fail()
        ended = [
            one
            for one in agenda_ids
            if one in self.agendas and self.agendas[one].state.is_terminal
        ]
        for agenda_id in ended:
            gone = self.agendas.pop(agenda_id)
            at = gone.accepted_at or gone.ended_at or LONG_AGO
            self.deleted_until = max(self.deleted_until or LONG_AGO, at)
        return ended

    def _fitting(self, wanted: AgendaFilter) -> list[Summary]:
        return [one for one in self.agendas.values() if _fits(one, wanted)]

    def _fold_one(self, event: LifecycleEvent) -> int:
        before = self.agendas.get(event.agenda_id)
        after, skipped = fold_all(before, [event])
        if after is not None and after != before:
            self.agendas[event.agenda_id] = after
            self.versions[event.agenda_id] += 1
        return skipped

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def _is_in(one: Summary, link: LinkScope) -> bool:
    is_seen = link.customer_id is None or one.customer_id == link.customer_id
    return one.link_id == link.link_id and is_seen


LONG_AGO = datetime.min.replace(tzinfo=UTC)


def _place(one: Summary) -> tuple[datetime, str]:
    return one.accepted_at or LONG_AGO, one.agenda_id


def _fits(one: Summary, wanted: AgendaFilter) -> bool:
    names = alternate_ids(one.body)
    at = one.accepted_at or LONG_AGO
    return (
        (not wanted.ids or one.agenda_id in wanted.ids)
        and (not wanted.customer_ids or one.customer_id in wanted.customer_ids)
        and (not wanted.insight_ids or one.insight_id in wanted.insight_ids)
        and (not wanted.link_ids or one.link_id in wanted.link_ids)
        and (not wanted.titles or one.title in wanted.titles)
        and (not wanted.external_ids or names.external_id in wanted.external_ids)
        and (not wanted.correlation_ids or names.correlation_id in wanted.correlation_ids)
        and (not wanted.states or one.state in wanted.states)
        and (not wanted.template_ids or names.template_id in wanted.template_ids)
        and (not wanted.priorities or one.priority in wanted.priorities)
        and (not wanted.attempts or one.attempt in wanted.attempts)
        and (not wanted.puller_ids or one.puller_id in wanted.puller_ids)
        and (not wanted.waiting_for or one.waiting_for in wanted.waiting_for)
        and (not wanted.stopping or one.stopping in wanted.stopping)
        and all(_has(one.body, each) for each in wanted.payload)
        and _is_within(at, wanted.accepted_from, wanted.accepted_before)
        and _is_within(one.emitted_at, wanted.emitted_from, wanted.emitted_before)
        and _is_within(one.started_at, wanted.started_from, wanted.started_before)
        and _is_within(one.ended_at, wanted.ended_from, wanted.ended_before)
    )


def _has(body: bytes, wanted: PayloadMatch) -> bool:
    for operation in json.loads(body or b"{}").get("operations", ()):
        found = operation.get("payload")
        try:
            for part in wanted.path:
                found = found[int(part) if isinstance(found, list) else part]
        except (LookupError, TypeError, ValueError):
            continue
        text = found if isinstance(found, str) else json.dumps(found)
        if found is not None and text in wanted.values:
            return True
    return False


def _is_within(at: datetime | None, first: datetime | None, before: datetime | None) -> bool:
    if at is None:
        return first is None and before is None
    return (first is None or at >= first) and (before is None or at < before)
