"""Decides which agendas of each insight are emitted next, and when.

The scheduler consumes `pop.ready`, a topic with few partitions that carries everything that an
insight's queue depends on: agendas routed to it, what pullers and users reported of them,
ticks, and queries. All insights of a resource pool share one partition, and one process at a
time owns it. So an insight has exactly one writer, which handles one record after the other.

    pop.ready  ->  faust.worker  ->  PartitionProcessor  ->  ReadyEventHandler  ->  RoundWriter

`ReadyEventHandler` applies a record to its insight and has the change saved in the ReadyAgenda
table (`state`). Then the insight may emit a round: the pure `policy.insight_scheduler` chooses
agendas within the emission budget, and `RoundWriter` publishes them to the insight's topic,
with lifecycle events and a decision that says who was chosen and why.

A partition of this process is in one of these states:

- Assigned: the table's rows of it are being read. Records wait.
- Catching up: it is loaded, and records from before the assignment are applied without any
  choice, for two seconds at most.
- Running: rounds are written as records come, and as ticks say that something is due.
- Postponed: brokers are away, and one record is tried again until they are back.
- In doubt: no heartbeat was acknowledged for a session. Nothing is written, because the group
  may have given the partition away (`PartitionOwnership`).
- Revoked: the record being handled is finished, its rows are flushed, and all of it is dropped.

It survives a kill at any point: a round is either found in the table and completed, or chosen
again without publishing a second time what its topic has. It survives a freeze, as the
publisher and the table refuse what was begun before it; an unusable record, which is split and
in part dead-lettered; and a lost row, as reconciliation requeues the agendas it held. A process
that makes no progress ends itself (`StallWatchdog`).

In memory only, and new after each assignment: leases, measured pace and lag, tokens of rate
limits.

Start reading at `event_handler`, then `round_writer`. `partition_processor` and `faust` are
about records that come late, twice or not at all. `ticker`, `usage_reporter` and `metrics` run
beside and change no backlog.
"""
