"""Measures the real stack: real Kafka, real PostgreSQL, every part a process of its own.

A measurement owns its stack: it starts it in a folder of its own, warms it up, measures, and
takes it down, also when it is interrupted. What was measured is worth nothing without its
circumstances, so every report ends with `conditions`: machine, versions, settings, commit, and
the load before. What a single run says is not trusted either: where it matters there are
several, in turn with what they are compared with, and the median counts.

Each benchmark is a command module and the module that runs it:

- `pipeline` and `pipeline_run`: agendas per second from submission to summary, beside a floor
  (`floor`, `floor_hop`): bare Kafka and Postgres clients that carry as many records over as
  many hops on the same servers.
- `latency` and `latency_run`: an open loop at a fixed rate. All times count from the instant
  at which a submission was due, so that a stall is not hidden by what it kept from being sent.
- `fairness`, `comparison` and `session`: a scenario of the simulator on the real stack, as it
  is, first come first served, and its quiet customer alone.
- `backlog`, `backlog_run` and `standing_backlog`: what one agenda of many costs to pick, to
  hold and to recover, with ingest, relay and pullers played by the benchmark.
- `idle`, `soak` and `soak_run`: what the parts cost at rest, and whether they grow under load.
- `compare`: two reports side by side.

Shared: `load` submits, `handlers` is the work, `observer` and `results` read what became of it,
`meter` reads what the processes cost, `figures` does the arithmetic, `options` has what several
commands share, `chart` draws. Start with `pipeline_run`, the simplest of the real ones.
"""
