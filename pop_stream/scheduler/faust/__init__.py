"""Everything of the scheduler that knows Faust: group membership, records, commits, the table.

Faust runs a consumer of aiokafka in a thread of its own and hands its records to one agent, in
the order of each partition. The scheduler takes from it what it is good at, and no more:

- `worker` has the agent and reacts to assignments. It composes the parts of the scheduler.
- `app` makes the application: its settings, queues bounded by bytes, no recovery by Faust.
- `table` implements the ReadyAgenda table on a Faust table in memory. It reads the changelog
  and writes it itself, in batches.
- `transport` hardens the Kafka client and commits past records that Faust lost.
- `client_internals` has one function for each private member that has to be reached, with the
  fault that it mends.

Faust's guarantees are weaker than they look, so none is relied on alone. It may skip records at
a rebalance: the offsets in the table's rows are compared with each record's. It may stop
reading or committing without an error: the watchdog ends the process. It acknowledges a record
whose handling raised: no exception leaves the agent's loop. It may hand on records of a
partition that the group has given away: nothing is written without a recent heartbeat.

On an assignment the transport's generation becomes the ownership epoch, the table notes which
rows are missing, and the ticker wakes each partition with a record; the rows are read before
the first record is handled. On a revocation the record being handled is finished first, while
the group waits, for at most half a session.

Faust is pinned, and aiokafka by the lock file; contract tests fail when a private member or a
fault changes.
Start reading at `worker`.
"""
