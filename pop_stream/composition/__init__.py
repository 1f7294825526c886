"""Which adapter stands behind which port: one file for each part.

A part's own package knows only ports. Here its publisher becomes a Kafka producer, its store a
pool of Postgres connections, its clock the wall clock; `run_<part>(settings, stop)` opens them
in the order in which they need each other, runs the part until `stop` is set, and closes them
in the opposite order. Settings are read here and passed on as values.

Every part runs alone in a process. It starts while Kafka or Postgres is away and works as soon
as they are there. `api.py`, `ingest.py` (with the relay), `scheduler.py` and `rollup.py` (with
the reconciler, retention and webhooks) are the parts; `auth.py`, `quotas.py` and `client.py`
are what several of them share.

Tests compose the same parts with decorated adapters, as for crash points.
"""
