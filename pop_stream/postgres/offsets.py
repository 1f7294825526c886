"""How far each partition was folded; moved on in the transaction that folds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pop_stream.model.errors import OffsetsMovedError
from pop_stream.postgres.pool import load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection

_OFFSETS_SQL: Final = load_queries("offsets")


async def read_offsets(connection: "Connection", topic: str) -> Mapping[int, int]:
    """The offset to read next, by partition; absent for one never read."""
    rows = await connection.fetch(_OFFSETS_SQL["next_offsets"], topic)
    return {row["partition"]: row["next_offset"] for row in rows}


async def advance_offsets(
    connection: "Connection", topic: str, spans: Mapping[int, tuple[int, int]]
) -> None:
    """Move partitions on from where the reader thinks they are.

    Until the transaction ends, no other process can move them.

    Raises:
        OffsetsMovedError: If one is elsewhere.
    """
    if begun := sorted(partition for partition, (start, _) in spans.items() if not start):
        await connection.execute(_OFFSETS_SQL["insert_offsets"], topic, begun)
    partitions = sorted(spans)
    status = await connection.execute(
        _OFFSETS_SQL["advance_offsets"],
        topic,
        partitions,
        [spans[partition][0] for partition in partitions],
        [spans[partition][1] for partition in partitions],
    )
    if affected(status) != len(partitions):
        msg = f"another process has moved partitions of {topic}, some of {partitions}"
        raise OffsetsMovedError(msg)


def affected(status: str) -> int:
    """How many rows a statement's status, such as `INSERT 0 7`, counts."""
    return int(status.rpartition(" ")[2])
