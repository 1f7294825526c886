"""What may happen to an agenda, and what all that happened to it adds up to.

`states` is the machine: one immutable table of (state, event) to state, and `step`, which
applies it. Several producers write events of one agenda, at least once and in any order, so
an event of an earlier phase of the same attempt leaves the state as it is, and an event of an
older attempt is recorded, not applied. A state that an agenda ended in is left only by a
rerun, as a new attempt.

`fold` makes the `summary.Summary` of an agenda from its events. Folding is idempotent and,
within an attempt, independent of order; so the rollup, the reconciler and a repair come to
the same summary.

`rerun` says which commands have an effect in which state, and builds the next attempt of an
agenda that has ended. `explain` says in words why one waits. `retention` says which ends are
old enough to be removed. `webhooks` is what a customer's server is sent at an end, and its
signature. `reconcile` holds summaries against what schedulers track.

Everything here is pure: the present, ids and definitions are arguments. Start with
`states.TRANSITIONS`.
"""
