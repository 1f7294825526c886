"""How agendas get in: whether a submission is sound, where it goes, and how much is too much.

A submission comes over HTTP or as a record of Kafka, and passes the same steps in both. None
of them waits, reads a clock or knows about the transport.

1. `admission.Admission` makes a `Submission` of its JSON text: size, syntax and soundness
   (`admission` parses it, and expands a template's run), whether the sender may submit for
   that customer, which insight it belongs to, and its id.
2. `routing.InsightRouter` chooses the insight: of those that serve the customer and fit, the
   one the agenda prefers, else by precedence, then by the more specific mapper. It can
   explain every choice.
3. `quotas.QuotaLedger` decides whether there is room: a rate and a number of ready agendas
   per customer, and the memory of the insight's scheduler. Each process keeps a ledger; they
   exchange counts (`usage`), so a quota may be exceeded by what others admitted within a
   moment.

What was admitted over HTTP is not refused later: the record is signed (`signature`), and
ingest counts it without deciding again.

Definitions are those of one moment. A submission that lacks only a definition, a quota or
room is kept with its refusal and can be resubmitted; any other has to be corrected.
"""
