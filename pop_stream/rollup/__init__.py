"""The rollup: folds all lifecycle events into summaries, and removes what ended long ago.

It reads `pop.agenda-events` and calls `SummaryStore.fold` with batches of events and the
offsets that they consume; both are written in one transaction, so each event counts exactly
once however often it is read. The database alone knows how far it is. After a rebalance, an
outage, a commit whose answer was lost, or when another process wrote in between, the process
drops the positions it believed in, asks, and seeks there. Offsets in Kafka only show the lag.

An event that no row can hold is found by halving its batch, dead-lettered, and passed. While
Postgres is away the rollup pauses, longer each time, and stays a member of its group. Nothing
but reads waits for it.

`retention` runs beside it: what ended longer ago than its state's span is removed in small
batches by any of the processes, never what has not ended, and never before its events have
left Kafka. Webhooks are enqueued by the fold itself and sent by `pop_stream.webhooks`.

`dead_letters` brings what is in `pop.dead-letters` and `pop.dead-webhooks` into the database,
`occurrences` what `pop.schedule-events` tells of schedules; both by `storing`.

Any number of processes share the partitions. Start with `Rollup.run`.
"""
