"""The backlog of one insight: all agendas that have not ended, and their attempts.

An agenda comes with a page, up to 512 agendas that were routed together, and is in one state
from then on until it has ended::

    waiting   for an instant: one it was submitted with, or the end of the pause before a retry
    held      for its release
    ready     for its turn
    emitted   on the insight's topic, unclaimed
    claimed   with a puller, under a lease

Waiting and held agendas become ready, ready ones stand in the fair queue until a round chooses
them, and heartbeats renew the leases of claimed ones. An attempt that fails or
loses its lease is followed by another, after a pause, until none is left; then the agenda is
exhausted. An
agenda that succeeded, was cancelled or expired, or is exhausted is *gone*. A page whose agendas
are all gone is deleted.

Reports may come late, twice, or about attempts that this process never emitted, because a crash
lost the row that said so. They name agenda and attempt, and are believed as far as the attempt
can have been made: the backlog then catches up with it. So a report that comes twice does
nothing the second time, and one of an outdated attempt is answered with a stop.

What survives: each change is a value in a `Delta`, and the pages with all deltas applied in
order are the state after a restart. What does not: lease clocks, offsets of emitted agendas,
idle runners and mean waits. After a restart all leases begin again, for their whole length.

Memory: a few hundred bytes an agenda. Bodies stay in the table of rows, found by page and slot.

Where to start: `backlog` has the class that others call. `page` and `agenda_index` say what
each agenda is, `state` moves one between its states, `attempts` handles claims, heartbeats,
ends and lost leases, `commands` what people and deadlines want, `leases` both clocks of what is
out. `outbox` collects what has to be published, `snapshot` makes deltas and applies them, and
`checkpoint` writes down all that a round depends on, for replays.
"""
