"""All that is kept in PostgreSQL; the only room that speaks asyncpg and SQL.

Postgres holds what people ask for: the summaries of agendas, the definitions, API keys, the
audit log. It is off the path of an agenda: while it is away agendas are submitted, scheduled
and run on, from Kafka and from definitions that are known already; reads answer 503, and the
summaries catch up afterwards.

One file per aggregate, each with its queries in `sql/queries/<aggregate>.sql`, loaded by name
(`pool.load_queries`):

- `summaries` folds lifecycle events into rows, and moves the consumed offsets in the same
  transaction (`offsets`), so each event is folded exactly once. It alone decides where the
  rollup reads on. `summary_rows` is the row format.
- `summary_reader`, `agendas`: reads for the API, and retention.
- `webhooks`: the outbox that the fold fills as agendas end.
- `definitions`, `keys`: the truth of which `pop.definitions` is a copy, with an outbox that
  is published in the order of commits.
- `ledger`, `open_agendas`: what the reconciler compares.

**Errors.** `pool.acquire_connection` translates the driver's errors once: a database that is
away, slow or shutting down raises UnavailableError, and whoever called decides whether to
wait. No asyncpg type leaves this room.

**Concurrency.** Several processes of every kind share the database. Rows of summaries are
guarded by a version that each update increments, offsets by the value they are expected to
have; who loses reads anew. Writers of definitions take turns by an advisory lock.

**The schema** is `sql/migrations`, applied by `migrate` under a lock, never backwards. A
migration must leave running what the version before it does.

Start with `summaries.PostgresSummaries.fold`.
"""
