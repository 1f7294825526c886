"""Runs a real Kafka, a real PostgreSQL and all parts on this machine, without containers.

The servers come from wheels and pinned jars (`jars`, `jvm`, `wheels`), are started as child
processes (`process`, `kafka`, `postgres`, together in `servers`) and keep their data in one
folder (`folder`) that a next start finds again: same ports, same password, same data.
`python -m pop_stream.devserver` runs them alone. On top of them `stack` runs a whole local
system as `plan` describes it: migrations, topics, definitions, and every part as a process that
`supervisor` keeps running.

One data folder has one owner at a time. Ownership is a lock of the kernel's, so a killed owner
leaves none behind; whoever comes second is refused with the first one's process id.

Nothing outlives its owner, of whatever cause that dies. A server's parent is `parent_watch`, a
small process that ends it when the owner's end of a pipe closes; a part reads the end of its
standard input and stops. What an owner left running all the same, because it was killed
together with those, is found by the record it wrote and ended before the next start.

A start that fails or is cancelled leaves nothing running and the folder unlocked. A server that
ends by itself fails the stack, unless the plan says to start it again; a part that crashes is
started again after a growing pause. Both refuse nothing to their clients that the real servers
allow; replication and timeouts are set for one machine.

Start reading with `servers`, then `stack`.
"""
