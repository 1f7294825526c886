"""Everything that speaks to Kafka; the only room that knows a client of it.

Other rooms see ports (`ports.publisher`, `ports.lag`, ...), plain records and partitions
(`ports.records`), and a few classes and errors under names of this room (`clients`, `errors`).

**Writing.** `publisher` is the port `Publisher`: acks=all, idempotent, in batches. What it did
not acknowledge may have been written all the same, so every record carries an identity by which
a repeat is recognised. `lifecycle_reader` reads and addresses events, `dead_letters` builds
records of `pop.dead-letters`, `topics` names all topics and creates them.

**Reading as a group.** `batch_consumer` hands batches to a part and commits what it handled: at
least once, so handlers bear repeats. `share_consumer` reads an insight as a share group.
`group_members` counts members and evicts dead ones; `lag` asks how far groups have come.

**Reading without a group.** What every process must know is followed by each of them by itself:
`topic_follower` and on it `attempt_stops`, `quota_gossip`, `deliveries`; `definitions` and
`queries` with consumers of their own. After an interruption they go on where they were.
`topic_reader` reads topics once. What such readers cannot decode is skipped, logged and counted
(`unreadable_records`).

**What it survives.** Brokers that are down are waited for, by the client or by a loop with a
pause. Brokers that are up and silent are skipped (`hardening.broker_timeouts`). A process that
lost its partitions commits nothing (`hardening.commit_guard`) and, with a fence, writes nothing
(`hardening.producer_fence`). A producer that the broker refuses for good is replaced. What is
not survived is an error that leaves `handle_batches`: then the process should end, and the next
owner of its partitions repeats the batch.

Start reading with `clients`, then `publisher` and `batch_consumer`. Contract suites in
`tests/contract` run on real brokers.
"""
