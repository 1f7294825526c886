"""Recorded rounds, chosen again: as they were, or with other weights.

Everything that a round depends on is on two topics. `pop.ready` has the events, and
`pop.decisions` has each round with its slots and instant, the definitions it was chosen under,
and now and then a checkpoint. A replay starts with round 1 or with a checkpoint, applies the
same events to an `InsightScheduler`, and chooses each round with its recorded slots. If the
choices are the same, the record explains them; if they are not, the policy has changed since or
a record is missing, and `first_inexact_round` says from which round on that may be.

`what_if` gives some customers other weights and leaves all else as recorded. An agenda that is
emitted at another time is taken to cost what it cost then, and to fail as it did.

Depth, pace and pools are not replayed: the number of slots is on record instead.
`decisions_log` reads the topics, `replay` chooses, `what_if` compares, and `command` is `pop-
stream replay`.
"""
