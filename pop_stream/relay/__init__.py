"""The relay: carries from `pop.agenda-events` to the scheduler what it needs, past Postgres.

Lifecycle events are keyed by agenda, the scheduler's topic `pop.ready` by insight. The relay
reads the one and writes the other: per batch and insight one `insight.attempts.reported` with
claims, heartbeats, ends and commands, and the agendas that are to run again as pages to be
placed.

It is stateless. Its offsets are committed once a batch is published, so a crash repeats whole
batches. Repeated reports change nothing, as attempts fence them; commands and restarts carry
their position in the topic, by which the scheduler knows repeats. Within a batch ends come
before restarts, and restarts before commands, so that a repeat together with later events
comes to the same.

How fast it relays decides how soon a freed slot is used again: `BatchPacer` gathers events
for some milliseconds, longer while no agenda waits for room. A relay that is down delays the
scheduler and loses nothing.

Ends of agendas that are occurrences of schedules go to `pop.occasions` too, for the timekeeper.

An event that cannot be read is left out, the rest of its record is not; reporting it is the
rollup's task, which reads the same topic.

Start with `Relay.handle`, then `translate`.
"""
