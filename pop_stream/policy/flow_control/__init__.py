"""How much of an insight's backlog may be on its topic, and where on it the next agendas go.

What lies on a topic is in an order that nobody can change any more: an agenda that comes later
waits for all of it, however urgent its customer's turn is. So the topic is kept as short as it
can be without a runner standing idle. That is decided in three steps:

- `target_depth` learns from claims how many unclaimed agendas keep the runners busy, and how
  fast the backlog is worked off. Where runs are long it is the `free_runners`, and no more.
- `emission_gate` compares that target, or the fixed one of the definition, with what is out,
and
  gives a round its budget. A topic above its low-water mark gets none, so that rounds are few
  and large, but for customers that are back from idleness.
- `pool_sharing` divides what a resource pool may have in flight among its insights, by minimum
  and weight, and lends what one does not want.

`emission_gate` then spreads a round over the partitions of the topic, and `forecast` tells
people where an agenda stands and about when it is claimed.

All of it is in memory and may be lost: a new process starts with a target of 8 and finds the
right one within seconds. An unclaimed agenda counts once by the claims that were reported and
once by the consumer lag that was measured; the lesser counts, for both bound it from above.
"""
