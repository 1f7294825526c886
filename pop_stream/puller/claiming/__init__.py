"""From a record in hand to an attempt that runs: how many, in which order, and what if not.

A claim has an order that nothing may change: publish `agenda.claimed`, wait for all
in-sync brokers, commit the offset, start. So lag means "not claimed yet" for the scheduler, a
crash repeats instead of losing, and an attempt runs only once no other member of the group
will read its record. `pipeline.ClaimPipeline` keeps the order and lets two batches overlap:
while one is committed, the next is published.

How many are claimed is decided by slots. `capacity.Capacity` has one for each runner, and some
more if agendas end faster than a claim takes (`Prefetch`): a claimed agenda can neither be
overtaken by a more urgent one nor run elsewhere, so as few as possible wait that way.

`claims.Claimer` publishes, and remembers what is claimed and not started: those leases run
already, and `reporting` renews them. `claims.AttemptWindow` drops what was seen before.

A batch ends in one of three ways. Its commit counts: it starts, and the slots go to the
attempts. Partitions move, or the commit stays unanswered: it is abandoned, the slots are free,
and the window admits the same attempts again. Publishing fails for good: the pipeline ends
with the error, and the consumer begins anew.
"""
