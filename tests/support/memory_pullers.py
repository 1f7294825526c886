"""Pullers in memory; the contract suite holds them to their port."""

from collections.abc import Sequence

from pop_stream.ports.pullers import PullerCursor, SeenPuller


class MemoryPullers:
    """The port, on a list."""

    def __init__(self) -> None:
        self.seen: list[SeenPuller] = []

    async def page(
        self, *, insight_id: str | None, after: PullerCursor | None, limit: int
    ) -> Sequence[SeenPuller]:
        place = ("", "") if after is None else (after.insight_id, after.puller_id)
        found = sorted(
            (
                one
                for one in self.seen
                if insight_id in {None, one.insight_id}
                and (one.insight_id, one.puller_id) > place
            ),
            key=lambda one: (one.insight_id, one.puller_id),
        )
        return found[:limit]
