"""Ingest: turns records of `pop.submissions` into accepted agendas, or refuses them.

Submissions come from the API, which has checked them already and answered 202, and from any
program that writes to the topic. Ingest checks each one by the same rules
(`policy.ingress.Admission`) and publishes what became of it: `agenda.accepted` or
`agenda.refused` on `pop.agenda-events`, the routed agendas on `pop.ready` in pages per
insight, and a dead letter for each record of which something was refused.

It keeps no state but the definitions it follows. Its offsets are committed once everything of
a batch is acknowledged, so a crash repeats whole batches. A repeat gives the same ids and the
same pages; the rollup skips acceptances it knows, the scheduler skips origins it has placed.

What the API has answered with 202 must not be refused here. Three things see to that: ingest
waits until its definitions are as new as those the API decided by (`DefinitionsBarrier`);
agendas that the API admitted are counted, not held to quotas (`KafkaSubmissionQuota`); and
what an ingest may have accepted before a crash is admitted again, for before it decides about
quotas it publishes how far it has begun.

Who sent a record is known by the API's signature, or by a token in its header
(`SenderAuthenticator`); without either it may be anyone's or is refused, as `POP_INGEST_AUTH`
says.

Any number of processes share the partitions. Start with `Ingest.handle`, then
`SubmissionProcessor.add`.
"""
