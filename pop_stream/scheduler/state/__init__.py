"""The scheduler's durable state: the rows of the ReadyAgenda table and their changelog.

The table is a compacted changelog topic with a copy in memory. It has the partitions of
`pop.ready`, and the owner of a partition is the only one that writes its rows. This room owns
what the rows mean (`row_format`), how a backlog becomes rows and is loaded from them
(`backlog_store`), and how rows reach the changelog (`changelog`). The table itself is a port;
its one implementation is in `scheduler.faust`.

A backlog has three kinds of rows. Pages have the bodies of agendas, as they came, and are
written once. The journal has a row for each handled record: a delta of everything that it
changed. A snapshot replaces the journal before it, so that the journal stays short.

Rows reach the changelog in the order in which they are put, and a crash keeps a prefix of them.
That order is what all else relies on:

- A journal row says up to which offset of `pop.ready` records were handled. Records after that
  are handled again, and a record that is handled twice changes nothing.
- A journal row that begins a round names it. The next row confirms that it was published.
- A snapshot is in force when its head is written, and not before.

It survives a crash between any two rows; rows of a former owner that arrive late, which are
recognised by their epoch; and rows that are lost or cannot be read, which are left out and
reported.

Start reading at the docstring of `backlog_store`.
"""
