"""Agendas for workers over HTTP, claimed by one process of the API for each insight.

A caller reaches whichever process its load balancer picks, and members of a consumer group own
partitions: if each process were a member, a caller could wait at one while the next agenda lies
in a partition of another. So for each insight one process is the *dispatcher*. It alone joins
the insight's group, and claims for the callers of all processes, with the rooms of
`pop_stream.puller`.

    caller -> API process -> pop.poll-demand -> dispatcher -> pop.deliveries -> API process

Every process publishes to `pop.poll-demand` for how many agendas its callers wait, and how many
it has received; the partitions of that topic are shared among all processes, and who owns an
insight's partition is its dispatcher. It claims no more than are wanted, commits, and publishes
each agenda to `pop.deliveries` for the process whose turn it is. That process answers its
caller (`kafka.deliveries`), with a lease token that proves the attempt (`policy.lease_token`).

For an insight, a dispatch is in one of these states. *Open*: it is a member of the group while
there is demand, and 15 s longer, since joining costs a rebalance. *Closed*: nobody has asked
for 15 s, or the partitions of `pop.poll-demand` move; what it has claimed and not delivered is
returned to the next dispatcher once the group has settled (`OrphanedDeliveries`).
*Unserved*: the group is a share group, and its client is not installed; callers get an error.

An agenda whose caller has gone comes back by `pop.poll-demand` and goes to the next one, with
the attempt and lease it has. If the dispatcher is killed, its callers wait until its session
has timed out; what it had claimed and not delivered comes back as the next attempt when its
lease ends. While Kafka is away nothing is claimed beyond 32 MiB.

What workers report does not come here: see `api.pulls`. Start with `dispatcher.Dispatcher`.
"""
