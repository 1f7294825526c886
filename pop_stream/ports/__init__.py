"""What the parts need of the world, as protocols: one module for each dependency.

A part names the port that it needs and never the adapter behind it. Which one stands there is
decided in `composition`: Kafka's adapters are in `kafka`, Postgres' in `postgres`; tests use
fakes in memory. Real adapters and fakes pass the same suites in `tests/contract`, so a
docstring here is a contract that is tested on both: order, errors, and what a second call does.

Values that cross a port are plain and immutable. `records` has those of Kafka: a record as it
was read, and the partition it was read from.

Errors are few. Where a database or broker cannot be reached, a method raises UnavailableError,
and trying again later is right; the lag probe alone returns "unknown" instead, as its callers
must go on without an answer. Methods that only ask may be cancelled at any point. After the
cancellation of one that writes, the write may have happened.

Nothing here reads a clock, a wire or a disk.
"""
