"""Searches for plays by which a customer gets more than its share; judges from outside.

The driver runs the real policy in virtual time. It tells the policy what the parts of the
product would tell it, and nothing else: agendas routed, claims, heartbeats, ends, commands,
definitions. The driver alone knows how long an agenda really takes; what is declared is up to
whoever plays. All counting is the driver's own, of what its runners run for whom: no figure
here is asked of the policy.

- `policy_port`: all contact with the policy, in one place.
- `ledger`: service, entitlement and waits, counted from what runs.
- `play`: what a customer does, as genes that combine freely and are written as one line.
- `driver`: scenes of customers who play on runners, in virtual time.
- `scenes`: the victims of an attack, and what they run on.
- `judgement`: what a play gains in a scene, beside an honest play of the same work.
- `attacks`: the plays that are known, by name.
- `search`: random and guided search for others.

Everything is deterministic: the same play in the same scene gives the same figures.
"""
