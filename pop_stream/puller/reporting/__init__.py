"""What a puller publishes of its attempts: heartbeats, progress and ends, in batches.

`reporter` makes the events of an attempt, none too large for a record: progress that
does not fit is split over several. `lease_renewer.LeaseRenewer` looks ten times a second at
all attempts that are claimed or run, and adds a heartbeat where a third of the lease, or the
heartbeat interval, has passed, and progress where there is some, at most twice a second.
`reporter.Reporter` publishes what was added, in the order of each agenda's events, and counts
what Kafka has not acknowledged. `messages` makes texts of handlers safe to store.

While Kafka is away, nothing is dropped: the reporter keeps what it has, the renewer adds no
second heartbeat to one that waits, and from 20,000 events or 32 MiB on no agenda is claimed.
A puller that stops waits ten seconds for the acknowledgements; what is not written by then is
lost with its lease, and tried again.
"""
