"""Whose turn is next: whoever was given least per weight, decided at the last moment.

The customers of one insight are in a `queue.FairQueue`, each with its own agendas in a
`customer_queue.CustomerQueue`. `turn_order` has what a customer or one of its keys was given,
and the heap of turns; `flow` is a customer with its share, and `eligible_customers` has those
that may go. `algorithms` says what else may decide a turn, `cost_model` what an agenda is taken
to cost. The queue survives a restart by what each customer was given and the present, which are
part of the backlog's deltas; what is out is in the records of agendas.

The position of a customer f of weight w is what was *delivered* to it, and what is *reserved*
for its agendas that are out, over its weight::

    p(f) = ( delivered(f) + sum over its agendas out of max(estimate, elapsed) ) / w

The least p is next. An estimate counts only until its agenda ends; then what it took is
delivered, however it ended. A customer that could not go before joins at the present, about the
position from which the one that is first now had its last agenda emitted; what was declared
beyond the usual is left out of that. So idleness earns nothing, and a declaration moves nobody
else for longer than it takes to come true or not.

With true costs this is start-time fair queueing with D agendas out, SFQ(D): p is the start tag
of f's next agenda (Goyal, Vin and Cheng, SIGCOMM 1996; Jin, Chase and Kaur, "Interposed
Proportional Sharing for a Storage Service Utility", SIGMETRICS 2004).

Bound. While f and g are both backlogged and weigh the same, what was delivered to f over w
exceeds that of g over any interval by at most (D + 1) (c_f / w_f + c_g / w_g), c being the
largest agenda; by emission by that without D + 1. With estimates: `lab.fairness_metrics.gap`.

Waiting. An agenda of f with k of f's own before it is emitted after every other backlogged
customer g was given at most (k + 1) c_f w_g / w_f + c_g worker-seconds. With strict priorities
so from (p - 1) steps after its arrival on, for priority p.
"""
