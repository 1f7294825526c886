"""Runs scenarios and traces in the simulator, and reports waits and fairness.

The command `pop-stream simulate` takes a named scenario (`scenarios`) or a file of real work
(`trace_file` reads it, `trace_columns` its rows, `trace` holds it), turns it into one case for
each insight (`cases`), and runs each case three times (`trial`): under the policy as
configured, first come first served, and with only the quiet customer. `report` says what came
of it in tables or JSON, `chart` draws the service of every customer over time as SVG, and
`command` can write every event as CSV.

The simulator itself, which knows nothing of files and options, is `pop_stream.lab.simulator`.
The scenarios are shared with `pop-stream bench fairness`, which runs them on the real stack.

All chance comes from the seed: the same command prints the same figures. A trace is read as a
whole before anything runs, and refused with all its faults if it cannot be used. Millions of
agendas fit in memory, because a trace is held in columns.
"""
