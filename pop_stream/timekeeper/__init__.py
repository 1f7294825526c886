"""The timekeeper: submits what schedules are due, wherever their partition is owned.

Schedules are spread over the partitions of `pop.occasions` by their ids; whoever has a
partition in the group `timekeeper` decides for its schedules (`policy.schedules`). It needs
Kafka and the definitions it follows, and no Postgres. Into the topic come ends of occurrences,
from the relay, and commands, from the API.

A decision is published in this order: submissions and cancels, then, once these are
acknowledged, the rows of `pop.timekeeper`, then the offsets. A crash in between, and an owner
that was frozen and goes on beside the next one, submit again what was submitted. Each
occurrence has an id and a position in a series of its own, so the scheduler places it once.
So nothing here is fenced.

What a customer's schedule submits is admitted as the customer's own, by the same rules as
over HTTP; what is not admitted is published as refused, under the occurrence's id. Ingest holds
it to the customer's quotas.

Rules submit in the same way, for records of users' topics, ends of agendas, changed
definitions and idle insights; each has a consumer group of its own, see `rule_runner`. What a
rule does besides submitting goes to `pop.rule-actions`, for the rollup's process, as it needs
the database.

It runs in ingest's process. A part that is down delays occurrences; when it is back, `misfire`
of each schedule says which are made up for. Start with `Timekeeper.run`, then
`policy.schedules.keeper`.
"""
