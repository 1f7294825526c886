"""What aiokafka does wrong for us, mended from outside, one fault at a time.

The client is sound in what it was written for: brokers that answer or are dead, readers that
are never busy, one owner of a partition after the other. A scheduler meets the rest. Brokers
freeze, members are expelled while a commit is on its way, a process is stopped for a minute and
goes on as if nothing had happened. Each module here mends one kind of such faults, says in its
docstring what the client does when left to itself, and is installed by `kafka.clients` on
every client, or by `scheduler.faust` on Faust's:

- `broker_timeouts`: a broker that does not answer is skipped by all clients of the process.
- `cancellation`: a client that is cancelled while it connects closes what it has opened.
- `fetcher`: which broker is asked for records when, and for how long it may hold the question.
- `commit_guard`: a commit ends with the assignment in which it was begun.
- `producer_fence`: a producer sends nothing that its process may no longer write.
- `internals`: the only module that names private members of the client, a wrapper for each.

All of them work on an instance, never on a class of the client, but for the level of
compression in `kafka.clients`, which the client reads from a module. They keep no state that
outlives the instance, except the set of unresponsive brokers, which all clients share. The
order in which wrappers are installed on a fetcher is the order in which they see a call: the
last one first.

None of this survives a new version of the client unread. It is pinned to one version, and
`tests/contract/test_client_internals.py` fails when a member that is named here has changed.
Read the client's new source then: a fault that it has mended is removed here.
"""
