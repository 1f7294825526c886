"""Agendas over HTTP: read, watched, explained and commanded.

Reads come from the summaries in Postgres (`reads.py`, shaped by `views.py`); an agenda is
visible there a moment after its 202, so event streams wait `appears_within` for one that is
not there yet. Lists are pages of a filter (`selection.py`) that is narrowed to what the caller
may see before limits apply.

Event streams (`streams.py`) share one look at the database: a hub asks once a tick for the
versions of all that is watched and reads only what has changed. A stream always sends the
newest snapshot and keeps no queue, so a slow reader costs no memory.

Commands (`commands.py`) change nothing here. The summary is asked whether the agenda's state
allows the command, so that most refusals are answered at once; then a record goes to
`pop.agenda-events`, and the scheduler, which alone decides, applies or ignores it. A command
sent twice has the effect of one.

Questions about the queue (`queries.py`) go to the scheduler that owns the insight, over Kafka,
and answer 503 when it does not reply in time.
"""
