"""Start-time fair queueing with D runners and known costs, as the textbook has it.

An oracle for the simulator's waits, written from the paper alone: it shares no code with the
policy. It knows every cost in advance, decides at the instant when a runner is idle, and loses
no time between.

Source: Jin, Chase and Kaur, "Interposed Proportional Sharing for a Storage Service Utility",
SIGMETRICS 2004, SFQ(D): an agenda's start tag is the larger of the virtual time when it arrives
and the finish tag of its customer's last one; the virtual time is the start tag of the last
that was dispatched; the least start tag is dispatched while fewer than D are out.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from pop_stream.lab.simulator.workload import Arrival
from pop_stream.model.ids import CustomerId


class TextbookStart(NamedTuple):
    """An agenda that began to run `waited_s` after it arrived."""

    customer_id: CustomerId
    waited_s: float
    runtime_s: float


def textbook_sfq(
    arrivals: Iterable[Arrival],
    runners: int,
    weights: Mapping[CustomerId, float] | None = None,
) -> Iterator[TextbookStart]:
    """All starts, in order.

    Args:
        arrivals: By instant.
        runners: D.
        weights: By customer; else 1.
    """
    weights = weights or {}
    virtual = 0.0
    finish_tags: dict[CustomerId, float] = {}
    waiting: list[tuple[float, int, Arrival]] = []
    ends: list[float] = []
    pending = iter([*arrivals])
    coming = next(pending, None)
    number = 0
    while coming is not None or waiting:
        now = _next_instant(coming, ends if len(ends) >= runners or not waiting else [])
        while ends and ends[0] <= now:
            heappop(ends)
        while coming is not None and coming.at <= now:
            start_tag = max(virtual, finish_tags.get(coming.customer_id, 0.0))
            weight = weights.get(coming.customer_id, 1.0)
            finish_tags[coming.customer_id] = start_tag + coming.runtime_s / weight
            heappush(waiting, (start_tag, number, coming))
            number += 1
            coming = next(pending, None)
        while waiting and len(ends) < runners:
            virtual, _, chosen = heappop(waiting)
            heappush(ends, now + chosen.runtime_s)
            yield TextbookStart(chosen.customer_id, now - chosen.at, chosen.runtime_s)


def _next_instant(coming: Arrival | None, ends: list[float]) -> float:
    return min([*([coming.at] if coming else []), *ends[:1]])
