"""Submissions over HTTP: validated, counted, deduplicated, published, and answered with 202.

The order matters and is the same for one agenda and for a list, of which each stands or falls
alone:

1. `validator.py` parses and validates by the definitions in force, and routes to an insight.
2. `repeats.py` looks the id up: what this process accepted lately, and what Postgres knows. The
   same content again is answered as before, other content under a known id is 409.
3. `duplicates.py` asks the scheduler about what wants to be refused as a duplicate: 409.
4. `submissions.SubmissionQuota` admits it or answers 429 with when to come back.
5. It is published to `pop.submissions`, and 202 follows the broker's acknowledgement.

A crash before the acknowledgement leaves nothing or an agenda that the caller does not know of;
sending it again with the same id is safe. While Postgres is away step 2 knows only this
process's own; a repeat that it misses is dropped by ingest and scheduler.

`template_runs.py` makes agendas from templates, and explains where an agenda is routed and why.
`resubmissions.py` submits refused agendas again once what they lacked is defined.
"""
