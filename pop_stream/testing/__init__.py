"""A scheduler in memory, for the unit tests of those who write handlers.

    from pop_stream.testing import InMemoryScheduler

    async def test_a_flood_does_not_delay_the_other_customer():
        scheduler = InMemoryScheduler(handlers, takes={"transcode": 60.0})
        await scheduler.client.submit_many(flood)
        await scheduler.run_until_idle()
        assert scheduler.picks[1].customer_id == "quiet"

It is the product without its servers. Submissions pass the real validation and routing, an
`InsightScheduler` for each insight decides who is next, handlers are called by the puller's own
`AgendaRun`, and events are folded into the same summaries, which the client then reads. There
is no Kafka, no Postgres, no port and no thread but those of handlers that are not async.

Time is virtual. The clock stands still while handlers run, and moves to the next instant at
which something happens: an agenda of operations that take 60 s occupies its runner until then,
and a retry after an hour is tried at once. So the same test makes the same picks every time.
What is simulated is only how long operations take: it is named by type in `takes`.

Not in it: keys and tenancy (the caller is an operator), quotas and limits at the entry points,
leases that run out, event streams, lists, dead letters, and definitions over the API. A call of
the client for one of these raises `ApiFaultError` with the status 501.

Start with `scheduler.InMemoryScheduler.run_until_idle`, then `runners.InMemoryRunners`.
"""

from pop_stream.testing.scheduler import InMemoryScheduler, PickedAgenda
from pop_stream.testing.transport import InMemoryClient

__all__ = ["InMemoryClient", "InMemoryScheduler", "PickedAgenda"]
