"""The worker library: register handlers by operation type, and run agendas with them.

    from pop_stream.puller import OperationCall, Puller

    puller = Puller("media")

    @puller.handler("transcode")
    async def transcode(operation: OperationCall) -> dict:
        await operation.report(50, "half way")
        return {"frames": 120}

    puller.run()

A puller is a member of the consumer group of each of its insights, or of the share group if
the insight has one. What it does with a record is a line of five steps, one room each:

    consuming   reads the insight's topic, a few records more than can start at once
    claiming    publishes `agenda.claimed`, commits the offset, and only then starts
    execution   runs the operations of the agenda, in the order of their dependencies
    handlers    calls your function for one operation
    reporting   renews the lease and publishes progress and the end

An attempt is in one of these states. *Read*: nobody knows, and another member of the group is
given the record if this one dies. *Claimed*: everybody can read the claim, the lease runs,
the offset is not committed; if the commit is refused or not answered in time, the claim is
abandoned. *Started*: it waits for a runner, or for the results of earlier attempts, or runs;
its lease is renewed. *Ended*: its end waits in the reporter until Kafka acknowledges it.

Delivery is at least once. A puller that is killed loses what it had claimed, and after the
lease the scheduler emits the next attempt. One that is frozen for longer than its lease goes on
with an outdated attempt, which is fenced by its number wherever it reports. While Kafka is
away, claims and reports wait, and nothing is lost. A puller remembers the attempts of the last
100,000 agendas, so a record that it reads twice it starts once.

Start with `puller.Puller.serve`, then `claiming.pipeline`, then `execution.executor`. The
API claims for workers that pull over HTTP with the same rooms; see `pop_stream.http_pull`.
"""

from pop_stream.model.references import escaped
from pop_stream.puller.handlers.builtin import builtin
from pop_stream.puller.handlers.errors import (
    CompletedElsewhere,
    FinalError,
    NotYet,
    RetryableError,
)
from pop_stream.puller.handlers.invocation import OperationCall, SyncOperationCall
from pop_stream.puller.handlers.registry import Handlers, load_handlers
from pop_stream.puller.puller import Puller

__all__ = [
    "CompletedElsewhere",
    "FinalError",
    "Handlers",
    "NotYet",
    "OperationCall",
    "Puller",
    "RetryableError",
    "SyncOperationCall",
    "builtin",
    "escaped",
    "load_handlers",
]
