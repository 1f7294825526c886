"""Pure decisions: what pop_stream does, without how it talks to anything.

Nothing here reads a clock, waits, writes a file or knows Kafka, Postgres or HTTP. Instants are
arguments, in seconds since the epoch unless a type says otherwise; random numbers are drawn
from seeds that are arguments too. So the same calls give the same results in the service, in a
test, in the simulator and in a replay of last week. Imports point to `pop_stream.model` alone,
which a contract in `pyproject.toml` checks.

An agenda meets these rooms in this order:

- `ingress` decides at the entry point: whether a submission is valid and within its customer's
  quota, and to which insight it is routed.
- `insight_scheduler` decides for one insight what is emitted next. It is one object, made of
  `backlog` (what each agenda of the insight is, and what became of its attempts), `fairness`
  (whose turn is next) and `flow_control` (how much may be emitted now).
- `http_pull` and `attempt_stops` decide what workers are given over HTTP, and which attempts
  pullers are to stop.
- `lifecycle` folds the events of an agenda into its summary, and decides about reruns,
  retention, webhooks, explanations and repairs.

`delta` is the form in which a backlog's changes are written, and `stall` says whether a reader
of a topic stands still. State is kept by whoever calls: these classes live in memory, and those
that must survive a crash say what to write and how to restore it. Start reading with
`insight_scheduler`.
"""
