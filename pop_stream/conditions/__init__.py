"""Conditions: finds out that what work waits for has come, and lets the work go on.

It runs beside the rollup, and goes by what the rollup has folded: every so often it asks the
database which waits are over, and publishes what follows from that to `pop.agenda-events`. It
keeps nothing of its own. An event that it publishes twice changes nothing the second time, and
one that was lost with its process is published at the next look, because the wait is still
there. So it survives every crash, works in any number of processes, and does not depend on the
order in which facts arrive.

While the database is away nothing that waits goes on; then all of it does.

Start with `watcher.ConditionWatcher.look`.
"""
