"""What goes wrong with Kafka, by the names under which other rooms catch it.

The classes are the client's own, so that what it raises needs no translation on its way. All
of them are a `KafkaError`; a client that cannot connect may raise `OSError` instead.
"""

from typing import Final

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

COMMIT_SUPERSEDED: Final = (CommitFailedError, IllegalStateError)
"""A commit was refused for good: its partitions belong to another member of the group now."""

__all__ = ["COMMIT_SUPERSEDED", "KafkaError"]
