"""Finds agendas on which Postgres, Kafka and the schedulers disagree, and repairs what it may.

An agenda is known in three places: its events in Kafka, which are the truth; its summary in
Postgres, which the rollup folds from them; and the backlog of its insight's scheduler, which
the relay keeps up to date. Each step between them survives a crash by being repeated, so they
agree in the end. What this room finds is what no crash of ours explains: a topic that was
made anew, a row that somebody changed by hand, a table that was lost, a bug.

**How something is found.** `comparison` holds summaries against what schedulers track. An
agenda on its way from one to the other looks lost for a moment. So everything is compared
twice, with all that was written in between folded, and only what is wrong both times, of
agendas that did not change meanwhile, counts (`policy.lifecycle.reconcile.confirmed`). What
remains is held against `evidence`: all that Kafka still has of these agendas. Where that says
something else than the summary, the summary is wrong, and nothing that was concluded from it
holds.

**What is repaired**, by `repairs`: a wrong or missing summary is folded anew from its events;
an agenda that nobody has is placed again, under an attempt number that outdates whoever might
run it; a scheduler that still holds what has ended is sent that end once more. Each of these
is absorbed where it was known already, so a repair that was repeated, or was not needed, does
no harm.

**Who uses it.** `Reconciler.reconcile` runs beside the rollup every few minutes, in one
process at a time, over the agendas that have not ended, and places again what is missing;
nothing else does it unasked. `Reconciler.audit` is `pop-stream doctor --ledger`: it looks at
everything both ways, and with `--repair` repairs every kind.

**What stops it.** While a scheduler does not answer, its insight is left out and named. While
the rollup, or for `reconcile` the relay or ingest, is far behind, nothing is said of any
agenda and nothing is done: `progress` raises UnavailableError.

Start with `Reconciler` in `reconciler.py`; the rules themselves are pure, in
`policy.lifecycle.reconcile`.
"""
