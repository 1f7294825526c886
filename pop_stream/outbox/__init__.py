"""The outbox of a service: what it submits is committed with its own rows, or not at all.

    from pop_stream import outbox

    with connection.transaction():
        connection.execute("insert into orders ...")
        outbox.submit(connection, {"customer_id": "acme", "operations": [...]})

`submit` writes a row of the table `pop_outbox` in the service's own Postgres, in the
transaction that is open. `pop-stream outbox` reads the table and submits what is committed,
over the HTTP API, under ids that were chosen when the rows were written.

A row is in one of these states. *Uncommitted*: nobody sees it, and a rollback or a crash of
the service leaves no trace. *Waiting*: committed; it is submitted once the API takes it,
however often the reader dies. *Sent*: the API has answered 202, and the row is deleted in the
same transaction that locked it. A reader that dies between the two submits it again, which the
API recognises by the id. *Refused*: the API says that it can never be accepted; the row stays,
with `reason`, for a person.

Customers do not wait for each other: one that is over its quota is paused alone. Several
readers share the table by `for update skip locked`; then, and between transactions that
overlap, rows need not go in the order of their positions.

Start with `submit.submit`, then `reader.OutboxReader.send_batch`.
"""

from pop_stream.outbox.submit import Insertion, asubmit, insertion, submit

__all__ = ["Insertion", "asubmit", "insertion", "submit"]
