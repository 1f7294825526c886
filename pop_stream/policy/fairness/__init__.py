"""Whose turn is next: start-time fair queueing over cost, decided at the last moment.

The customers of one insight are in a `queue.FairQueue`, each with its own agendas in a
`customer_queue.CustomerQueue`. `flow` is a customer with its share and its tag, and
`eligible_customers` has those that may go, in the order of their turns. `algorithms` says how a
turn is charged, `cost_model` what an agenda is taken to cost. The queue survives a restart by
the tags of its customers and the virtual time, which are part of the backlog's deltas.

Start-time fair queueing (SFQ) gives the j-th agenda of customer f, of cost c and weight w, a
start tag S and a finish tag F on a virtual clock v(t), in worker-seconds per unit of weight::

    S(f, j) = max( v(arrival of j), F(f, j - 1) )        F(f, j) = S(f, j) + c / w

and emits in the order of S. v(t) is the start tag emitted last, and when nothing waits and
nothing runs, the greatest F so far. Goyal, Vin and Cheng, "Start-time Fair Queuing", SIGCOMM
1996, section 2 (IEEE/ACM Transactions on Networking 5(5), 1997). SFQ(D) is the same with up to
D agendas out at once, which here is all that is emitted and not settled: Jin, Chase and Kaur,
"Interposed Proportional Sharing for a Storage Service Utility", SIGMETRICS 2004.

Here only the head of a customer's queue has a tag, and that tag is the customer's, `Flow.tag`:
F(f, j - 1) while the customer waits without a break, raised to v when it comes back from
idleness, a pause or a cap. For those who stay backlogged it is the same S, but it is made up
when it is needed, so that weights and priorities act on all that waits; who returns has saved
nothing up and owes nothing but its last charge. Four things are not in the papers:

- Costs are estimates. What an agenda cost more or less moves its customer's tag when it
  settles. v goes back with a refunded customer, or customers that join would wait for it, and
  on with the least tag, or they would be given what nobody owes them. What was emitted while
  one customer had all turns is not corrected once somebody else has come.
- A new weight scales how far a customer is ahead of v: that is a debt in worker-seconds.
- Those held by a limit of their own are as good as idle, so a slot is empty only if nobody
  who may go has work waiting.
- Strict priorities, where wanted, are levels with a v of their own: `virtual_clock`.

Bound. While f and g are both backlogged and weigh the same, what they were given over w
differs over any interval by at most c_f / w_f + c_g / w_g by emission (as SFQ's, of requests
served one by one), and by at most D + 1 times that by completion (as SFQ(D)'s); c is the
largest cost. With wrong estimates: `lab.fairness_metrics.gap`.

Waiting. An agenda of f with k of f's own before it is emitted after every other backlogged
customer g was given at most (k + 1) c_f w_g / w_f + c_g worker-seconds: until then the tag of
g is between v and the start tag of that agenda. Corrections move tags besides: f waits first
for what its agendas took above their charges, and g is given what its own took below theirs.
With strict priorities so from (p - 1) steps after its arrival on, for priority p.
"""
