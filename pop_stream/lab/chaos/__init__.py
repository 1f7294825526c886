"""Kills and freezes parts of a running system under load, and judges whether promises held.

A run has six steps, in `run`: start everything; warm up, so that no first start is timed;
submit load while faults are injected; wait until every acknowledged agenda has ended or the
time is over; gather evidence; judge. Everything is made from one seed: the load, and which
part is hit when and how. The report names the command that makes the same run again.

What is believed is what is on record, not what a process says of itself: Kafka's records,
Postgres' rows, and a file to which every handler appends before it does anything else
(`handlers`). `judge` holds that against the promises of `docs/reference/guarantees.md`:
nothing acknowledged is lost, no attempt starts twice but in the aftermath of a fault, Postgres
says what Kafka's events add up to, and work that is ready does not stand still. What cannot be
kept while all copies of a needed part are frozen or down is not held against it.

Schedules may fire meanwhile (`schedules`): which occurrences there must be is known beforehand.

Reconciliation is off: what is lost is to be seen, not mended. The run survives the faults it
injects, since it is none of the parts; a part that is down when its fault comes is waited for,
so that every fault hits something. Start reading with `run`, then `faults` and `judge`.
"""
