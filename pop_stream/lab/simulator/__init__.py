"""The scheduling policy in virtual time, to compare rules and find limits without a broker.

`simulation` runs the `InsightScheduler` that the service runs. Around it are simulated:
arrivals, the topic with its runners, and the delays of ingest, emission and reports. Virtual
time jumps from event to event, so an hour takes as long as its events take to handle. Nothing
is random and no clock is read: the same workload under the same configuration gives the same
log.

The scheduler can be restarted on the way, which loses what is in memory only and restores the
rest from saved pages and deltas; pullers can rebalance; definitions can change. Not simulated
are failures, retries, lost leases, stops and deadlines: each agenda is run once and succeeds.

The outcome is a `ServiceLog`, the form in which benchmarks and the demo record a real run too,
so `pop_stream.lab.fairness_metrics` measures all of them alike. `workload` has the types of the
input; start reading there, then at `simulate`.
"""
