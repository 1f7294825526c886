"""Both ports of the summaries in memory; the contract suite holds it to them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pop_stream.core.errors import OffsetsMovedError, UnstorableError
from pop_stream.core.events import LifecycleEvent
from pop_stream.core.summary import LinkSummary, Summary, fold_all
from pop_stream.ports import FoldedBatch, LinkPart


class MemorySummaries:
    """Summaries in a dict; `failures` are raised by the next calls, in order."""

    def __init__(self) -> None:
        self.agendas: dict[str, Summary] = {}
        self.versions: Counter[str] = Counter()
        self.offsets: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self.failures: list[Exception] = []

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        self._fail()
        return dict(self.offsets[topic])

    async def fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        lifecycle: Sequence[LifecycleEvent],
    ) -> FoldedBatch:
        self._fail()
        known = self.offsets[topic]
        if any(known.get(partition, 0) != start for partition, (start, _) in spans.items()):
            msg = f"partitions of {topic} were moved"
            raise OffsetsMovedError(msg)
        if any("\0" in event.agenda_id for event in lifecycle):
            msg = "an id holds a NUL character"
            raise UnstorableError(msg)
        skipped = sum(self._fold_one(event) for event in lifecycle)
        known.update((partition, end) for partition, (_, end) in spans.items())
        return FoldedBatch(applied=len(lifecycle) - skipped, skipped=skipped)

    async def agenda(self, agenda_id: str) -> Summary | None:
        self._fail()
        return self.agendas.get(agenda_id)

    async def agenda_owners(self, agenda_ids: Sequence[str]) -> Mapping[str, str]:
        self._fail()
        known = self.agendas
        return {one: known[one].customer_id for one in agenda_ids if one in known}

    async def link(self, link: LinkPart) -> LinkSummary | None:
        self._fail()
        linked = [one for one in self.agendas.values() if _is_in(one, link)]
        if not linked:
            return None
        percent = sum(one.percent for one in linked) / len(linked)
        return LinkSummary(link.link_id, Counter(one.state for one in linked), percent)

    async def agenda_versions(self, agenda_ids: Sequence[str]) -> Mapping[str, int]:
        self._fail()
        return {one: self.versions[one] for one in agenda_ids if one in self.agendas}

    async def link_versions(self, links: Sequence[LinkPart]) -> Mapping[LinkPart, int]:
        self._fail()
        versions: Counter[LinkPart] = Counter()
        for agenda_id, one in self.agendas.items():
            for link in links:
                if _is_in(one, link):
                    versions[link] += self.versions[agenda_id]
        return versions

    async def ping(self) -> None:
        self._fail()

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


def _is_in(one: Summary, link: LinkPart) -> bool:
    is_seen = link.customer_id is None or one.customer_id == link.customer_id
    return one.link_id == link.link_id and is_seen
